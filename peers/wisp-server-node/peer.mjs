// The wisp-server-node peer: its Wisp v1 proxy behind a plain HTTP server, with the flags and the
// JSON event lines of docs/peers.md. It plays the server only; the library has no client.
import { readFileSync } from "node:fs";
import http from "node:http";
import { parseArgs } from "node:util";

const errorsOnly = 3; // LOG_LEVEL.ERROR of the library; below it prints a line for every stream
const usage = "usage: peer.mjs server --listen HOST:PORT | peer.mjs version";

// The library logs to console.log too; stdout is for events only.
console.log = console.info = console.debug = console.error;

function emit(event) {
  process.stdout.write(JSON.stringify(event) + "\n");
}

class UsageError extends Error {}

// listenAddress reads --listen HOST:PORT, with brackets round an IPv6 address.
function listenAddress(args) {
  let text;
  try {
    text = parseArgs({ args, options: { listen: { type: "string" } } }).values.listen;
  } catch (error) {
    throw new UsageError(error.message);
  }
  const match = /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/.exec(text ?? "");
  if (!match || Number(match[3]) > 65535) throw new UsageError(`--listen wants HOST:PORT, not ${text}`);
  return { host: match[1] ?? match[2], port: Number(match[3]) };
}

async function server(args) {
  const { host, port } = listenAddress(args);
  const { default: library } = await import("wisp-server-node");
  const { routeRequest } = library.default ?? library; // CommonJS, seen through a module
  const web = http.createServer((_, response) => response.end("wisp-server-node\n"));
  web.on("upgrade", (request, socket, head) => routeRequest(request, socket, head, { logLevel: errorsOnly }));
  await new Promise((resolve, reject) => {
    web.once("error", (error) => reject(new Error(`listening on ${host}:${port}: ${error.message}`)));
    web.listen(port, host, resolve);
  });
  const bound = web.address();
  const name = bound.family === "IPv6" ? `[${bound.address}]` : bound.address;
  emit({ event: "ready", address: `ws://${name}:${bound.port}/` });
}

function version() {
  const path = new URL("node_modules/wisp-server-node/package.json", import.meta.url);
  process.stdout.write(`wisp-server-node ${JSON.parse(readFileSync(path)).version} (node ${process.versions.node})\n`);
}

// client is what the library lacks: unsupported, which is not a failure.
function client() {
  emit({ event: "error", message: "wisp-server-node is a server only" });
  process.exit(127);
}

process.on("SIGTERM", () => process.exit(0));
const [command, ...args] = process.argv.slice(2);
try {
  const commands = { server, client, version };
  if (!Object.hasOwn(commands, command ?? "")) throw new UsageError(usage);
  await commands[command](args);
} catch (error) {
  emit({ event: "error", message: error.message });
  process.exit(error instanceof UsageError ? 2 : 1);
}
