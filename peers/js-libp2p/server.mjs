// The serving side of both perf protocols.
import { createNode, manyStreams, multiaddrOf } from "./node.mjs";
import { headerBytes, perf010, perf100, Reader, send, Span } from "./perf.mjs";

const block = new Uint8Array(128_000); // bytes, as the clients of libp2p-perf have it

// serve listens, calls emit with the ready line and with the result of each finished stream, and returns
// while the node goes on.
export async function serve({ listen, security, seed }, emit) {
  const node = await createNode({ security, seed, listen: multiaddrOf(listen) });
  for (const protocol of [perf010, perf100]) await node.handle(protocol, async (stream) => emit(await answer(stream, protocol)), manyStreams);
  emit({ event: "ready", address: node.getMultiaddrs()[0].toString() });
}

// answer serves one stream and returns the result line; a run that was cut short is marked incomplete.
async function answer(stream, protocol) {
  const upload = new Reader(stream, protocol === perf100 ? headerBytes : 0);
  const download = new Span();
  let incomplete;
  try {
    await upload.end();
    const wanted = protocol === perf100 ? Number(new DataView(upload.prefix.buffer).getBigUint64(0)) : 0;
    await send(stream, block, wanted, Infinity, download);
    await stream.close();
  } catch (error) {
    incomplete = true;
    console.error(`${protocol}: ${error.message}`);
    stream.abort(error);
  }
  return {
    event: "result",
    role: "server",
    protocol,
    received_bytes: upload.span.bytes,
    sent_bytes: download.bytes,
    seconds: upload.span.seconds + download.seconds,
    incomplete,
  };
}
