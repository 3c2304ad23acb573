// Runs every Wisp client of these folders against every server, against targets of its own, and
// checks the bytes that arrived there against what the client says. Runs are interleaved: each
// repetition goes once through all cells.
//
//   node test/cross.mjs [--seconds 3] [--reps 3] [--bytes N] [--clients a,b] [--servers a,b]
//                       [--modes flood,echo] [--shapes 1x1,1x10,5x10]      connections x streams
//
// A cell shows the median goodput of one direction in MiB/s, as the client measured it. The exit
// code is 1 if any run failed, sent another number of bytes than asked, or lost some on the way.
import { spawn } from "node:child_process";
import net from "node:net";
import readline from "node:readline";
import { parseArgs } from "node:util";

const peers = new URL("../../", import.meta.url).pathname;
const servers = {
  "wisp-js": ["node", "peer.mjs"],
  "wisp-server-node": ["node", "peer.mjs"],
  "wisp-server-python": [".venv/bin/python", "peer.py"],
  "wisp-mux": ["target/release/peer"],
};
const clients = { "wisp-js": servers["wisp-js"], "wisp-mux": servers["wisp-mux"] };

const text = (value) => ({ type: "string", default: value });
const flags = parseArgs({
  options: {
    seconds: text("3"),
    reps: text("3"),
    bytes: { type: "string" },
    clients: text(Object.keys(clients).join()),
    servers: text(Object.keys(servers).join()),
    modes: text("flood,echo"),
    shapes: text("1x1,1x10,5x10"),
  },
}).values;

// A Target counts what arrives; it echoes or discards.
class Target {
  constructor(echo) {
    this.received = 0;
    this.open = new Set();
    this.server = net.createServer((socket) => {
      this.open.add(socket);
      socket.on("close", () => this.open.delete(socket));
      socket.on("error", () => {}); // a reset is an end like another here
      socket.on("data", (data) => (this.received += data.length));
      if (echo) socket.pipe(socket);
    });
  }

  // listen resolves to HOST:PORT.
  listen() {
    return new Promise((resolve) => {
      this.server.listen(0, "127.0.0.1", () => resolve(`127.0.0.1:${this.server.address().port}`));
    });
  }

  async drained() {
    for (let i = 0; this.open.size > 0 && i < 100; i++) await sleep(50);
  }
}

const sleep = (millis) => new Promise((resolve) => setTimeout(resolve, millis));
const exited = (child) => new Promise((resolve) => child.on("close", (code, signal) => resolve(code ?? signal)));

// start runs a peer program and resolves, with the child, to its first event line.
function start(name, program, args) {
  const child = spawn(program[0], [...program.slice(1), ...args], {
    cwd: peers + name,
    stdio: ["ignore", "pipe", "pipe"],
  });
  child.log = "";
  child.stderr.on("data", (data) => (child.log = (child.log + data).slice(-2000)));
  child.ended = exited(child);
  const lines = readline.createInterface({ input: child.stdout });
  const first = new Promise((resolve) => {
    lines.once("line", (line) => resolve(JSON.parse(line)));
    child.ended.then((code) => resolve({ event: "error", message: `ended with ${code} and no event` }));
  });
  return first.then((event) => ({ child, event }));
}

async function runCell({ client, server, mode, connections, streams }, targets) {
  const target = targets[mode];
  const served = await start(server, servers[server], ["server", "--listen", "127.0.0.1:0"]);
  if (served.event.event !== "ready") return { failure: `server: ${served.event.message}` };
  target.received = 0;
  const length = flags.bytes ? ["--bytes", flags.bytes] : ["--seconds", flags.seconds];
  const { child, event } = await start(client, clients[client], [
    ...["client", "--connect", served.event.address, "--target", target.address, "--mode", mode],
    ...["--streams", streams, "--connections", connections, ...length],
  ]);
  const code = await child.ended;
  await target.drained();
  served.child.kill("SIGTERM");
  const end = await served.child.ended;
  return { event, ...judge({ event, code, end, mode, arrived: target.received, log: child.log + served.child.log }) };
}

function judge({ event, code, end, mode, arrived, log }) {
  if (event.event !== "result") return { failure: `client: ${event.message}; ${log.trim().slice(0, 300)}` };
  if (code !== 0) return { failure: `client ended with ${code}` };
  if (end !== 0) return { failure: `server ended with ${end} on SIGTERM: ${log.trim().slice(0, 300)}` };
  if (flags.bytes && event.sent_bytes !== Number(flags.bytes)) return { failure: `sent ${event.sent_bytes}` };
  if (mode === "echo" && event.received_bytes !== event.sent_bytes)
    return { failure: `${event.received_bytes} came back of ${event.sent_bytes}` };
  if (arrived !== event.sent_bytes) return { failure: `lost ${event.sent_bytes - arrived} of ${event.sent_bytes} bytes` };
  return { rate: event.sent_bytes / event.seconds / (1 << 20) };
}

const median = (values) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)];

const targets = { flood: new Target(false), echo: new Target(true) };
for (const target of Object.values(targets)) target.address = await target.listen();

const cells = [];
for (const shape of flags.shapes.split(","))
  for (const mode of flags.modes.split(","))
    for (const client of flags.clients.split(","))
      for (const server of flags.servers.split(",")) {
        const [connections, streams] = shape.split("x");
        cells.push({ shape, mode, client, server, connections, streams, rates: [], failures: [] });
      }
for (let rep = 0; rep < Number(flags.reps); rep++)
  for (const cell of cells) {
    const { rate, failure } = await runCell(cell, targets);
    if (failure) cell.failures.push(failure);
    else cell.rates.push(rate);
  }
for (const { shape, mode, client, server, rates, failures } of cells) {
  const shown = rates.map((rate) => rate.toFixed(0)).join(" ");
  const middle = rates.length ? median(rates).toFixed(0) : "-";
  console.log([shape, mode, `${client} -> ${server}`, middle, `[${shown}]`, ...failures].join("\t"));
}
process.exit(cells.some((cell) => cell.failures.length) ? 1 : 0);
