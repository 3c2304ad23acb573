// The dialing side: floods all streams of all connections, and sums up.
import { multiaddr } from "@multiformats/multiaddr";
import { Unsupported } from "./errors.mjs";
import { createNode, manyStreams } from "./node.mjs";
import { headerBytes, perf010, perf100, Reader, send, Span, write } from "./perf.mjs";

const connectMillis = 15_000;
const drainMillis = 10_000; // for the server to say that it has read everything
const forEver = 2n ** 64n - 1n; // bytes asked for by a download that ends by time

// run resolves to the figures of a good run, and rejects if any stream fails.
export async function run(options) {
  const { protocol, download } = options;
  if (protocol !== perf010 && protocol !== perf100) throw new Unsupported(`protocol ${protocol}: this peer has ${perf010} and ${perf100}`);
  if (download && protocol === perf010) throw new Unsupported(`${perf010} has no download`);
  const begin = performance.now();
  const streams = (await Promise.all(Array.from({ length: options.connections }, () => connect(options)))).flat();
  const setup = performance.now() - begin;
  const end = options.bytes === undefined ? performance.now() + options.seconds * 1000 : Infinity;
  const spans = await Promise.all(streams.map((stream, i) => move(stream, share(options.bytes, i, streams.length), end, options)));
  const bytes = spans.reduce((sum, span) => sum + span.bytes, 0);
  const moved = spans.filter((span) => span.bytes > 0);
  const seconds = (Math.max(...moved.map((span) => span.last)) - Math.min(...moved.map((span) => span.first))) / 1000;
  return {
    sent_bytes: download ? 0 : bytes,
    received_bytes: download ? bytes : 0,
    seconds: moved.length ? seconds : 0,
    setup_seconds: setup / 1000,
  };
}

// connect resolves to the streams of a new connection. Each has a node of its own: a node keeps to the
// connection that it already has.
async function connect({ address, security, protocol, streams }) {
  const node = await createNode({ security });
  try {
    const connection = await node.dial(multiaddr(address), { signal: AbortSignal.timeout(connectMillis) });
    const open = () => connection.newStream(protocol, { ...manyStreams, signal: AbortSignal.timeout(connectMillis) });
    return await Promise.all(Array.from({ length: streams }, open));
  } catch (error) {
    throw new Error(`dial ${address}: ${error.message}`, { cause: error });
  }
}

// share is stream i's part of n bytes; undefined, without an end, if n is.
function share(n, i, streams) {
  return n === undefined ? undefined : Math.floor(n / streams) + (i < n % streams ? 1 : 0);
}

// move floods one stream one way: n bytes, or until the instant end if n is undefined.
async function move(stream, n, end, { protocol, download, block }) {
  const reader = new Reader(stream);
  if (protocol === perf100) await write(stream, header(download ? (n ?? forEver) : 0));
  const span = download ? reader.span : new Span();
  if (!download) await send(stream, new Uint8Array(block), n ?? Infinity, end, span);
  await stream.close();
  if (!download) await reader.end(AbortSignal.timeout(drainMillis));
  else if (n === undefined) await cut(stream, reader, end);
  else await reader.end();
  if (download && n !== undefined && span.bytes !== n) throw new Error(`${span.bytes} of ${n} bytes arrived`);
  return span;
}

// header is how many bytes the server shall send, of /perf/1.0.0.
function header(n) {
  const bytes = new Uint8Array(headerBytes);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(n));
  return bytes;
}

// cut reads until the instant end and resets the stream; the span keeps what had come until then.
async function cut(stream, reader, end) {
  const timeout = AbortSignal.timeout(Math.max(0, Math.round(end - performance.now())));
  const cause = await reader.end(timeout).catch((error) => error);
  if (!timeout.aborted) throw cause ?? new Error("the server ended a download that has no end");
  stream.abort(new Error("the time is up"));
}
