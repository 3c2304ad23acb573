// Starts peers as the matrix does, and reads the lines they print.
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

const serverBlock = 128_000; // bytes of one write of each of our servers
const peers = fileURLToPath(new URL("../..", import.meta.url));

// The programs, and the file that shows that each is built.
export const programs = {
  js: { folder: "js-libp2p", argv: [process.execPath, "peer.mjs"], built: "node_modules/.package-lock.json" },
  py: { folder: "py-libp2p", argv: [".venv/bin/python", "peer.py"], built: ".venv/built" },
  go: { folder: "go-libp2p", argv: ["bin/peer"], built: "bin/peer" },
};

export const isBuilt = (name) => existsSync(`${peers}${programs[name].folder}/${programs[name].built}`);

function start(name, args) {
  const { folder, argv } = programs[name];
  return spawn(argv[0], [...argv.slice(1), ...args], { cwd: peers + folder, stdio: ["ignore", "pipe", "pipe"] });
}

// A Peer is a running program: its JSON lines, and how it ended.
export class Peer {
  lines = [];
  stderr = "";
  #rest = "";
  #waiting = [];

  constructor(name, args) {
    this.process = start(name, args);
    this.process.stdout.setEncoding("utf8").on("data", (text) => this.#read(text));
    this.process.stderr.setEncoding("utf8").on("data", (text) => (this.stderr = (this.stderr + text).slice(-4000)));
    this.ended = new Promise((resolve) => this.process.on("close", (code, signal) => resolve(code ?? signal)));
    this.ended.then(() => this.#wake());
  }

  #read(text) {
    const whole = (this.#rest + text).split("\n");
    this.#rest = whole.pop();
    this.lines.push(...whole.map((line) => JSON.parse(line)));
    this.#wake();
  }

  #wake() {
    for (const look of this.#waiting.splice(0)) look();
  }

  // until resolves to the first thing that find makes of the lines, and rejects at the program's end or
  // after some seconds.
  async until(find, seconds = 30) {
    const deadline = Date.now() + seconds * 1000;
    for (;;) {
      const found = find(this.lines);
      if (found) return found;
      if (this.process.exitCode !== null) throw new Error(`ended with ${this.process.exitCode}: ${JSON.stringify(this.lines.at(-1))} ${this.stderr}`);
      if (Date.now() > deadline) throw new Error(`nothing within ${seconds} s; last line ${JSON.stringify(this.lines.at(-1))} ${this.stderr}`);
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, deadline - Date.now() + 1);
        this.#waiting.push(() => (clearTimeout(timer), resolve()));
      });
    }
  }

  address() {
    return this.until((lines) => lines.find((line) => line.event === "ready")?.address);
  }

  // stop sends SIGTERM and resolves to the exit code.
  async stop() {
    this.process.kill("SIGTERM");
    const timer = setTimeout(() => this.process.kill("SIGKILL"), 5000);
    const code = await this.ended;
    clearTimeout(timer);
    return code;
  }
}

// runClient resolves to the exit code and the last line of a client that ran to its end.
export async function runClient(name, args, seconds = 60) {
  const peer = new Peer(name, ["client", ...args]);
  const timer = setTimeout(() => peer.process.kill("SIGKILL"), seconds * 1000);
  const code = await peer.ended;
  clearTimeout(timer);
  return { code, line: peer.lines.at(-1) ?? {}, stderr: peer.stderr };
}

// totals sums up the result lines of a server from index on.
export function totals(lines, index) {
  const results = lines.slice(index).filter((line) => line.event === "result");
  const sum = (key) => results.reduce((n, line) => n + line[key], 0);
  return {
    runs: results.length,
    received: sum("received_bytes"),
    sent: sum("sent_bytes"),
    seconds: Math.max(0, ...results.map((line) => line.seconds)),
    incomplete: results.filter((line) => line.incomplete).length,
    protocols: new Set(results.map((line) => line.protocol)),
  };
}

// meet runs one client against a running server and throws unless both ends agree to the byte. It
// resolves to the receiver's bytes and seconds.
export async function meet(server, client, { security, protocol, download, bytes, seconds, streams = 1, connections = 1 }) {
  const before = server.lines.length;
  const args = ["--connect", await server.address(), "--security", security, "--protocol", protocol];
  args.push("--streams", `${streams}`, "--connections", `${connections}`);
  args.push(...(bytes ? ["--bytes", `${bytes}`] : ["--seconds", `${seconds}`]), ...(download ? ["--download"] : []));
  const { code, line, stderr } = await runClient(client, args);
  const fail = (what) => {
    throw new Error(`${client} ${args.join(" ")}: ${what}; ${JSON.stringify(line)} ${stderr}`);
  };
  if (code !== 0 || line.event !== "result") fail(`exit code ${code}`);
  const runs = streams * connections;
  await server.until((lines) => totals(lines, before).runs >= runs);
  const seen = totals(server.lines, before);
  const moved = download ? line.received_bytes : line.sent_bytes;
  if (moved <= 0 || (bytes && moved !== bytes)) fail(`the client moved ${moved} bytes`);
  if (seen.runs !== runs) fail(`the server saw ${seen.runs} runs`);
  if (seen.protocols.size !== 1 || !seen.protocols.has(protocol)) fail(`the server served ${[...seen.protocols]}`);
  // A timed download ends by reset: some of what was sent does not arrive, and of the block that the reset
  // interrupts, the server cannot tell what had gone.
  const cut = download && !bytes;
  const agree = cut ? seen.sent + runs * serverBlock >= moved : (download ? seen.sent : seen.received) === moved;
  if (!agree) fail(`the server received ${seen.received} and sent ${seen.sent} bytes`);
  if (seen.incomplete !== (cut ? runs : 0)) fail(`${seen.incomplete} runs are incomplete`);
  if (!(line.seconds > 0) || !(line.setup_seconds > 0)) fail("a time is missing");
  return { bytes: moved, seconds: download ? line.seconds : seen.seconds };
}
