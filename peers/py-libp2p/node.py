"""The libp2p host, with what a user of the library would set for a throughput test and nothing else."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from libp2p import new_host
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.crypto.x25519 import create_new_key_pair as create_new_noise_key_pair
from libp2p.security.insecure.transport import PLAINTEXT_PROTOCOL_ID, InsecureTransport
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE_PROTOCOL_ID
from libp2p.security.noise.transport import Transport as NoiseTransport
from libp2p.stream_muxer.yamux.yamux import PROTOCOL_ID as YAMUX_PROTOCOL_ID
from libp2p.stream_muxer.yamux.yamux import Yamux
from multiaddr import Multiaddr


@asynccontextmanager
async def running_host(security: str, listen: str | None = None, seed: int = 0) -> AsyncIterator:
    """Run a host that listens on a multiaddr, or only dials if that is None.

    security is noise or plaintext. seed, if it is not 0, makes the identity deterministic: its 8 bytes,
    big endian, and 24 zeros are the Ed25519 seed, as in the go-libp2p peer.
    """
    keys = create_new_key_pair(seed.to_bytes(8, "big") + bytes(24)) if seed else create_new_key_pair()
    if security == "noise":
        transport = {NOISE_PROTOCOL_ID: NoiseTransport(keys, noise_privkey=create_new_noise_key_pair().private_key)}
    else:
        transport = {PLAINTEXT_PROTOCOL_ID: InsecureTransport(keys)}
    host = new_host(key_pair=keys, sec_opt=transport, muxer_opt={YAMUX_PROTOCOL_ID: Yamux})
    async with host.run([Multiaddr(listen)] if listen else []):
        yield host


def multiaddr_of(host: str, port: int) -> str:
    """Turn a host, which is an IP address, and a port into libp2p's form."""
    return f"/{'ip6' if ':' in host else 'ip4'}/{host}/tcp/{port}"
