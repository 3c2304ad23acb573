// The command line of the js-libp2p peer: reads the flags, runs one role, and turns what comes of it into
// the JSON event lines and the exit code that docs/peers.md asks for. Results go to stdout, the rest to
// stderr.
import "./runtime.mjs";
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { Unsupported, UsageError } from "./errors.mjs";

const usage = `usage: peer.mjs server --listen HOST:PORT --security noise|plaintext [--seed N]
       peer.mjs client --connect MULTIADDR|HOST:PORT --security noise|plaintext
                       --protocol /perf/0.1.0|/perf/1.0.0 [--seconds 10] [--bytes N] [--download]
                       [--block 128000] [--streams 1] [--connections 1]
       peer.mjs version`;

const string = (value) => ({ type: "string", default: value });
const serverFlags = { listen: { type: "string" }, security: string("noise"), seed: string("0") };
const clientFlags = {
  connect: { type: "string" },
  security: string("noise"),
  protocol: string("/perf/1.0.0"),
  seconds: string("10"),
  bytes: { type: "string" },
  download: { type: "boolean", default: false },
  block: string("128000"),
  streams: string("1"),
  connections: string("1"),
};

function emit(event) {
  process.stdout.write(JSON.stringify(event) + "\n");
}

// hostPort splits HOST:PORT, with brackets round an IPv6 address.
function hostPort(flag, text) {
  const match = /^(?:\[([^\]]+)\]|([^:/]+)):(\d{1,5})$/.exec(text ?? "");
  if (!match || Number(match[3]) > 65535) throw new UsageError(`--${flag} wants HOST:PORT, not ${text}`);
  return { host: match[1] ?? match[2], port: Number(match[3]) };
}

function number(flag, text, { min, whole }) {
  const value = Number(text);
  if (!(value >= min) || (whole && !Number.isSafeInteger(value)))
    throw new UsageError(`--${flag} wants a ${whole ? "whole " : ""}number of at least ${min}, not ${text}`);
  return value;
}

function seedOf(text) {
  if (!/^\d+$/.test(text) || BigInt(text) >= 2n ** 64n) throw new UsageError(`--seed wants a whole number below 2^64, not ${text}`);
  return BigInt(text);
}

function flags(args, options) {
  try {
    return parseArgs({ args, options }).values;
  } catch (error) {
    throw new UsageError(error.message);
  }
}

async function server(args) {
  const { listen, security, seed } = flags(args, serverFlags);
  const options = { listen: hostPort("listen", listen), security, seed: seedOf(seed) };
  const { serve } = await import("./server.mjs");
  await serve(options, emit);
}

async function client(args) {
  const values = flags(args, clientFlags);
  const count = (flag) => number(flag, values[flag], { min: 1, whole: true });
  const { multiaddrOf } = await import("./node.mjs");
  const options = {
    address: values.connect?.startsWith("/") ? values.connect : multiaddrOf(hostPort("connect", values.connect)),
    security: values.security,
    protocol: values.protocol,
    seconds: number("seconds", values.seconds, { min: 0, whole: false }),
    bytes: values.bytes === undefined ? undefined : count("bytes"),
    download: values.download,
    block: count("block"),
    streams: count("streams"),
    connections: count("connections"),
  };
  const { run } = await import("./client.mjs");
  emit({ event: "result", role: "client", protocol: options.protocol, ...(await run(options)) });
}

function version() {
  const path = new URL("node_modules/libp2p/package.json", import.meta.url);
  process.stdout.write(`js-libp2p ${JSON.parse(readFileSync(path)).version} (node ${process.versions.node})\n`);
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
  process.exit(error instanceof Unsupported ? 127 : error instanceof UsageError ? 2 : 1);
}
