"""What both roles do on a stream of a perf protocol: write payload, and read to the end of data.

/perf/0.1.0  the client writes and half-closes; the server reads to the end and half-closes.
             (the protocol of libp2p-perf)
/perf/1.0.0  the client writes how many bytes it wants back, u64 big endian, then its payload, and
             half-closes; the server reads to the end, sends those bytes and half-closes.
             (libp2p/specs, perf/perf.md)
"""

import math
import time

from libp2p.network.stream.exceptions import StreamEOF

PERF_010 = "/perf/0.1.0"
PERF_100 = "/perf/1.0.0"
HEADER_BYTES = 8
READ_BYTES = 1 << 20  # all that the library has buffered, up to this


class CutShort(Exception):
    """The stream ended without the peer's end of data."""


class Span:
    """Payload, with the instants of its first and its last byte, in seconds of the monotonic clock."""

    def __init__(self) -> None:
        self.bytes = 0
        self.first = math.inf
        self.last = -math.inf

    def add(self, n: int) -> None:
        if n > 0:
            self.last = time.perf_counter()
            self.first = min(self.first, self.last)
            self.bytes += n

    @property
    def seconds(self) -> float:
        return self.last - self.first if self.bytes else 0.0


async def send(stream, block: bytes, n: float, end: float, span: Span) -> None:
    """Write n bytes of payload in pieces of block, or until the instant end; math.inf for neither.

    The library returns from a write when the kernel has the bytes, so span counts what has left.
    """
    if n > 0:
        span.first = time.perf_counter()
    while span.bytes < n and time.perf_counter() < end:
        piece = block if n - span.bytes >= len(block) else block[: n - span.bytes]
        await stream.write(piece)
        span.add(len(piece))


async def read_exactly(stream, n: int) -> bytes:
    """Read n bytes, or raise CutShort."""
    data = b""
    while len(data) < n:
        try:
            data += await stream.read(n - len(data))
        except StreamEOF as error:
            raise CutShort(f"{len(data)} of {n} bytes of the header came") from error
    return data


async def drain(stream, span: Span) -> None:
    """Read to the peer's end of data and count in span; raise CutShort if the stream ends otherwise.

    The library reports a lost connection as an end of data, too, and marks the stream as reset.
    """
    try:
        while True:
            span.add(len(await stream.read(READ_BYTES)))
    except StreamEOF as error:
        muxed = stream.muxed_stream
        if muxed.reset_received or not muxed.recv_closed:
            raise CutShort("the connection was lost before the end of data") from error
