// The command line of the wisp-js peer: reads the flags, runs one role, and turns what comes of it
// into the JSON event lines and the exit code that docs/peers.md asks for. Results go to stdout,
// the library's own messages to stderr.
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";

const usage = `usage: peer.mjs server --listen HOST:PORT
       peer.mjs client --connect ws://HOST:PORT/ --target HOST:PORT --mode flood|echo
                       [--wisp-version 1|2] [--seconds 10] [--bytes N] [--block 51200]
                       [--streams 1] [--connections 1]
       peer.mjs version`;

const string = (value) => ({ type: "string", default: value });
const serverFlags = { listen: { type: "string" } };
const clientFlags = {
  connect: { type: "string" },
  target: { type: "string" },
  mode: string("flood"),
  "wisp-version": string("2"),
  seconds: string("10"),
  bytes: { type: "string" },
  block: string("51200"),
  streams: string("1"),
  connections: string("1"),
};

// The libraries print to console.info and console.log too; stdout is for events only.
console.log = console.info = console.debug = console.error;

function emit(event) {
  process.stdout.write(JSON.stringify(event) + "\n");
}

class UsageError extends Error {}

// hostPort splits HOST:PORT, with brackets round an IPv6 address.
function hostPort(flag, text) {
  const match = /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/.exec(text ?? "");
  if (!match || Number(match[3]) > 65535) throw new UsageError(`--${flag} wants HOST:PORT, not ${text}`);
  return { host: match[1] ?? match[2], port: Number(match[3]) };
}

function number(flag, text, { min, whole }) {
  const value = Number(text);
  if (!(value >= min) || (whole && !Number.isSafeInteger(value)))
    throw new UsageError(`--${flag} wants a ${whole ? "whole " : ""}number of at least ${min}, not ${text}`);
  return value;
}

function oneOf(flag, text, choices) {
  if (!choices.includes(text)) throw new UsageError(`--${flag} is one of ${choices.join(", ")}, not ${text}`);
  return text;
}

function flags(args, options) {
  try {
    return parseArgs({ args, options }).values;
  } catch (error) {
    throw new UsageError(error.message);
  }
}

async function server(args) {
  const { host, port } = hostPort("listen", flags(args, serverFlags).listen);
  const { serve } = await import("./server.mjs");
  const address = await serve(host, port);
  emit({ event: "ready", address: `ws://${address}/` });
}

async function client(args) {
  const values = flags(args, clientFlags);
  if (!/^wss?:\/\/.*\/$/.test(values.connect ?? ""))
    throw new UsageError(`--connect wants ws://HOST:PORT/ with the final slash, not ${values.connect}`);
  const count = (flag) => number(flag, values[flag], { min: 1, whole: true });
  const options = {
    url: values.connect,
    target: hostPort("target", values.target),
    mode: oneOf("mode", values.mode, ["flood", "echo"]),
    wispVersion: Number(oneOf("wisp-version", values["wisp-version"], ["1", "2"])),
    seconds: number("seconds", values.seconds, { min: 0, whole: false }),
    bytes: values.bytes === undefined ? Infinity : count("bytes"),
    block: count("block"),
    streams: count("streams"),
    connections: count("connections"),
  };
  const { run } = await import("./client.mjs");
  emit({ event: "result", role: "client", protocol: options.mode, ...(await run(options)) });
}

function version() {
  const path = new URL("node_modules/@mercuryworkshop/wisp-js/package.json", import.meta.url);
  process.stdout.write(`wisp-js ${JSON.parse(readFileSync(path)).version} (node ${process.versions.node})\n`);
}

process.on("SIGTERM", () => process.exit(0));
const [command, ...args] = process.argv.slice(2);
try {
  const commands = { server, client, version };
  if (!Object.hasOwn(commands, command ?? "")) throw new UsageError(usage);
  await commands[command](args);
  if (command !== "server") process.exit(0);
} catch (error) {
  emit({ event: "error", message: error.message });
  process.exit(error instanceof UsageError ? 2 : 1);
}
