// What both roles do on a stream of a perf protocol: write payload, and read to the end of data.
//
//   /perf/0.1.0  the client writes and half-closes; the server reads to the end and half-closes.
//                (the protocol of libp2p-perf)
//   /perf/1.0.0  the client writes how many bytes it wants back, u64 big endian, then its payload, and
//                half-closes; the server reads to the end, sends those bytes and half-closes.
//                (libp2p/specs, perf/perf.md)
export const perf010 = "/perf/0.1.0";
export const perf100 = "/perf/1.0.0";
export const headerBytes = 8;

// A Span is payload with the instants, in milliseconds, of its first and last byte.
export class Span {
  bytes = 0;
  first = 0;
  last = 0;

  add(n, now = performance.now()) {
    if (n <= 0) return;
    if (this.bytes === 0) this.first ||= now;
    this.bytes += n;
    this.last = now;
  }

  get seconds() {
    return (this.last - this.first) / 1000;
  }
}

// until resolves at the next of the events, whichever comes first.
function until(target, names, signal) {
  return new Promise((resolve, reject) => {
    const settle = (act) => () => {
      for (const name of names) target.removeEventListener(name, done);
      signal?.removeEventListener("abort", failed);
      act();
    };
    const done = settle(resolve);
    const failed = settle(() => reject(signal.reason));
    for (const name of names) target.addEventListener(name, done);
    signal?.addEventListener("abort", failed);
    if (signal?.aborted) failed();
  });
}

// whyDown says what ended a stream that is not open any more.
function whyDown(stream) {
  return new Error(`the stream is ${stream.status === "reset" ? "reset by the peer" : stream.status}`);
}

// drained waits until the muxer took what it was given: there is window, and room in the socket. The
// library's own onDrain cannot do it, since its promise is not renewed after the first wait.
async function drained(stream) {
  while (stream.writableNeedsDrain || stream.writeBufferLength > 0) {
    if (stream.status !== "open" || stream.writeStatus !== "writable") throw whyDown(stream);
    await until(stream, ["drain", "idle", "close"]);
    await null; // the library goes on sending in a microtask of the drain event
  }
}

// write sends some bytes that are no payload, and waits for room.
export async function write(stream, bytes) {
  stream.send(bytes);
  await drained(stream);
}

// send writes n bytes of payload in pieces of block, or until the instant end, and counts in span what has
// left for the kernel. It holds at most one block that the window or the socket has no room for.
export async function send(stream, block, n, end, span) {
  if (n > 0) span.first = performance.now();
  while (span.bytes < n && performance.now() < end) {
    const piece = n - span.bytes < block.length ? block.subarray(0, n - span.bytes) : block;
    stream.send(piece);
    await drained(stream);
    span.add(piece.length);
  }
}

// A Reader counts what arrives on a stream. It must be made before the stream's handler first waits: what
// comes while nobody listens is buffered by the library, but never waited for.
export class Reader {
  constructor(stream, prefix = 0) {
    this.stream = stream;
    this.span = new Span();
    this.prefix = new Uint8Array(prefix); // bytes in front of the payload
    this.prefixed = 0;
    this.finished = stream.status === "open" && stream.remoteWriteStatus === "closed";
    stream.addEventListener("remoteCloseWrite", () => (this.finished = true));
    stream.addEventListener("message", ({ data }) => this.#take(data));
  }

  #take(data) {
    let n = data.byteLength;
    if (this.prefixed < this.prefix.length) {
      const missing = Math.min(n, this.prefix.length - this.prefixed);
      this.prefix.set(data.subarray(0, missing), this.prefixed);
      this.prefixed += missing;
      n -= missing;
    }
    this.span.add(n);
  }

  // end resolves at the peer's end of data, and rejects if the stream ended otherwise or on the signal.
  async end(signal) {
    if (!this.stream.readableEnded) await until(this.stream, ["end", "close"], signal);
    // If the end came during the negotiation, the library has said so already and hands on what it holds.
    while (this.stream.readBufferLength > 0 && this.stream.status === "open") await until(this.stream, ["message", "close"], signal);
    if (!this.finished || this.stream.status === "reset" || this.stream.status === "aborted") throw whyDown(this.stream);
    if (this.prefixed < this.prefix.length) throw new Error("the stream ended within the header");
  }
}
