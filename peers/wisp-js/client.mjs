// The Wisp client of wisp-js as a load generator: opens the streams, keeps them busy, and counts.
//
// Pacing. The library queues without limit, both in a stream without credit (stream.send_buffer) and
// in the WebSocket (ws.bufferedAmount), so a loop that only sends would count bytes that never left.
// A stream is therefore offered a block only while it has credit (stream.buffer_size, in packets) and
// its WebSocket holds less than `highWater` bytes. Two things let a stopped stream go on:
//
//   credit    a CONTINUE packet: stream.continue_received is wrapped, and fills at once
//   ws room   nothing announces it through the library, so a timer of 1 ms looks; highWater is what
//             the socket takes in several such periods, so that it never runs dry meanwhile
//
// The end. Wisp has no half-close: a CLOSE makes the server drop what it still queues for the target.
// Once everything has left for the socket the clock stops (in echo mode: once everything came back),
// and the streams are closed only after the servers have been quiet, that is, sent no CONTINUE, for
// `quietMillis`: while a server drains a queue it hands out credit.
import { client } from "@mercuryworkshop/wisp-js/client";

const highWater = 4 << 20; // bytes in the WebSocket's own buffer
const quietMillis = 500;
const quietLimitMillis = 10_000; // a server that is never quiet is closed all the same
const setupMillis = 10_000;
const stallMillis = 10_000; // nothing sent and nothing received for so long: the run has failed

const sleep = (millis) => new Promise((resolve) => setTimeout(resolve, millis));

// run carries out one test and resolves to its figures: sums over all streams, bytes and seconds.
// options: url, target {host, port}, mode, wispVersion, seconds, bytes (Infinity: until the time is
// over), block, streams (per connection), connections. Rejects if any stream or connection fails.
export async function run(options) {
  const begin = performance.now();
  const connections = await Promise.all(Array.from({ length: options.connections }, () => connect(options)));
  const load = new Load(options, connections);
  const setup = performance.now() - begin;
  try {
    const elapsed = await load.run();
    await load.quiet();
    return {
      sent_bytes: load.sent,
      received_bytes: load.received,
      seconds: elapsed / 1000,
      setup_seconds: setup / 1000,
    };
  } finally {
    load.close();
  }
}

// connect resolves once the server has granted credit, which ends the Wisp handshake.
function connect({ url, wispVersion }) {
  return new Promise((resolve, reject) => {
    let cause = "the library does not say why"; // its onerror has no argument, the first socket has
    const fail = (what) => reject(new Error(`connecting to ${url}: ${what}`));
    const timer = setTimeout(() => fail(`no Wisp handshake within ${setupMillis / 1000} s`), setupMillis);
    const connection = new client.ClientConnection(url, { wisp_version: wispVersion });
    connection.ws.addEventListener("error", (event) => (cause = event.message || cause));
    connection.onopen = () => (clearTimeout(timer), resolve(connection));
    connection.onerror = () => fail(cause);
    connection.onclose = () => fail("closed during the handshake");
  });
}

// A Load is the streams of one run with the sums over them.
class Load {
  constructor({ mode, target, seconds, bytes, block, streams }, connections) {
    this.echo = mode === "echo";
    this.connections = connections;
    this.millis = bytes === Infinity ? seconds * 1000 : Infinity;
    this.left = bytes; // the budget that all streams share
    this.block = new Uint8Array(block).fill(0x5a);
    this.sent = 0; // handed to the library
    this.received = 0;
    this.lastCredit = 0; // when the last CONTINUE came
    this.error = null;
    this.open = [];
    for (const connection of connections) {
      connection.onclose = connection.onerror = () => this.fail("the server closed the WebSocket");
      for (let i = 0; i < streams; i++) this.open.push(this.openStream(connection, target));
    }
  }

  openStream(connection, { host, port }) {
    const stream = connection.create_stream(host, port);
    const library = stream.continue_received.bind(stream);
    stream.continue_received = (credit) => {
      library(credit);
      this.lastCredit = performance.now();
      this.fill(stream);
    };
    stream.onclose = (reason) => this.fail(`the server closed a stream to ${host}:${port}, reason 0x${reason.toString(16)}`);
    stream.onmessage = (data) => (this.received += data.length);
    return stream;
  }

  fail(message) {
    this.error ??= new Error(message);
  }

  // fill gives a stream what its credit and the WebSocket have room for.
  fill(stream) {
    while (stream.open && stream.buffer_size > 0 && stream.ws.bufferedAmount < highWater && this.left > 0) {
      const block = this.left < this.block.length ? this.block.subarray(0, this.left) : this.block;
      stream.send(block);
      this.left -= block.length;
      this.sent += block.length;
    }
  }

  // fillAll starts with another stream each time, so that a full WebSocket starves none.
  fillAll(turn) {
    for (let i = 0; i < this.open.length; i++) this.fill(this.open[(turn + i) % this.open.length]);
  }

  buffered() {
    return this.connections.reduce((sum, connection) => sum + connection.ws.bufferedAmount, 0);
  }

  done() {
    return this.left <= 0 && this.buffered() === 0 && (!this.echo || this.received >= this.sent);
  }

  // run resolves to the milliseconds from the first payload byte to the last.
  async run() {
    const begin = performance.now();
    let progress = { state: "", at: begin };
    for (let turn = 0; !this.done(); turn++) {
      const now = performance.now();
      if (now - begin >= this.millis) this.left = 0;
      this.fillAll(turn);
      const state = `${this.sent} sent, ${this.received} received, ${this.buffered()} still buffered`;
      if (state !== progress.state) progress = { state, at: now };
      if (now - progress.at > stallMillis) this.fail(`stalled for ${stallMillis / 1000} s: ${state} bytes`);
      if (this.error) throw this.error;
      await sleep(1);
    }
    if (this.echo && this.received > this.sent) throw new Error(`${this.received} bytes came back of ${this.sent}`);
    return performance.now() - begin;
  }

  // quiet waits until no server has handed out credit for a while.
  async quiet() {
    const begin = performance.now();
    for (let now = begin; now - begin < quietLimitMillis; now = performance.now()) {
      if (this.error) throw this.error;
      if (now - Math.max(begin, this.lastCredit) >= quietMillis) return;
      await sleep(10);
    }
  }

  close() {
    for (const connection of this.connections) connection.onclose = connection.onerror = () => {};
    for (const stream of this.open) {
      stream.onclose = () => {};
      stream.close(0x02); // voluntary
    }
    for (const connection of this.connections) connection.close();
  }
}
