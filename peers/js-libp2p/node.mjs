// The libp2p node, with what a user of the library would set for a throughput test and nothing else. The
// README gives the reason for each setting.
import { generateKeyPairFromSeed } from "@libp2p/crypto/keys";
import { noise } from "@libp2p/noise";
import { plaintext } from "@libp2p/plaintext";
import { tcp } from "@libp2p/tcp";
import { yamux } from "@libp2p/yamux";
import { createLibp2p } from "libp2p";
import { Unsupported } from "./errors.mjs";

const securities = { noise, plaintext };

// manyStreams lifts the library's limits on streams of one protocol, 32 in and 64 out.
export const manyStreams = { maxInboundStreams: Infinity, maxOutboundStreams: Infinity };

// createNode makes a node that listens on the multiaddr, or only dials if there is none. seed, a BigInt
// other than 0, makes the identity deterministic: its 8 bytes, big endian, and 24 zeros are the Ed25519
// seed, as in the go-libp2p peer.
export async function createNode({ security, listen, seed }) {
  if (!Object.hasOwn(securities, security)) throw new Unsupported(`security ${security}: this peer has noise and plaintext`);
  const options = {
    transports: [tcp()],
    connectionEncrypters: [securities[security]()],
    streamMuxers: [yamux({ maxEarlyStreams: Infinity })],
    addresses: { listen: listen ? [listen] : [] },
    connectionManager: { inboundConnectionThreshold: Infinity, maxIncomingPendingConnections: Infinity },
    connectionMonitor: { abortConnectionOnPingFailure: false },
  };
  if (seed) options.privateKey = await generateKeyPairFromSeed("Ed25519", seedBytes(seed));
  return createLibp2p(options);
}

function seedBytes(seed) {
  const bytes = new Uint8Array(32);
  new DataView(bytes.buffer).setBigUint64(0, seed);
  return bytes;
}

// multiaddrOf turns HOST:PORT, the host an IP address, into libp2p's form.
export function multiaddrOf({ host, port }) {
  return `/${host.includes(":") ? "ip6" : "ip4"}/${host}/tcp/${port}`;
}
