"""The dialing side: floods all streams of all connections, and sums up."""

import math
import time
from contextlib import AsyncExitStack

import trio
from libp2p.peer.peerinfo import info_from_p2p_addr
from multiaddr import Multiaddr

from node import running_host
from perf import HEADER_BYTES, PERF_100, CutShort, Span, drain, send

CONNECT_SECONDS = 15
DRAIN_SECONDS = 10  # for the server to say that it has read everything
FOR_EVER = 2**64 - 1  # bytes asked for by a download that ends by time


async def run(options) -> dict:
    """Return the figures of a good run; raise if any stream fails. options are the command line's."""
    async with AsyncExitStack() as hosts:
        begin = time.perf_counter()
        streams = []
        for _ in range(options.connections):
            host = await hosts.enter_async_context(running_host(options.security))
            streams += await connect(host, options)
        setup = time.perf_counter() - begin
        end = math.inf if options.bytes else time.perf_counter() + options.seconds
        spans = [Span() for _ in streams]
        async with trio.open_nursery() as nursery:
            for i, stream in enumerate(streams):
                nursery.start_soon(move, stream, share(options.bytes, i, len(streams)), end, options, spans[i])
    moved = sum(span.bytes for span in spans)
    seconds = max(span.last for span in spans) - min(span.first for span in spans) if moved else 0.0
    return {
        "sent_bytes": 0 if options.download else moved,
        "received_bytes": moved if options.download else 0,
        "seconds": seconds,
        "setup_seconds": setup,
    }


async def connect(host, options) -> list:
    """Return the streams of a connection. Each has a host of its own: a host keeps to the one it has."""
    try:
        with trio.fail_after(CONNECT_SECONDS):
            server = info_from_p2p_addr(Multiaddr(options.connect))
            await host.connect(server)
            return [await host.new_stream(server.peer_id, [options.protocol]) for _ in range(options.streams)]
    except trio.TooSlowError as error:
        raise TimeoutError(f"dial {options.connect}: not within {CONNECT_SECONDS} s") from error
    except Exception as error:
        raise ConnectionError(f"dial {options.connect}: {error or type(error).__name__}") from error


def share(n: int | None, i: int, streams: int) -> int | None:
    """Return stream i's part of n bytes; None, without an end, if n is None."""
    return None if n is None else n // streams + (i < n % streams)


async def move(stream, n: int | None, end: float, options, span: Span) -> None:
    """Flood one stream one way: n bytes, or until the instant end if n is None."""
    if options.protocol == PERF_100:
        back = (FOR_EVER if n is None else n) if options.download else 0
        await stream.write(back.to_bytes(HEADER_BYTES, "big"))
    if not options.download:
        await send(stream, bytes(options.block), math.inf if n is None else n, end, span)
    await stream.close_write()
    if not options.download:
        await drained(stream)
    elif n is None:
        await cut(stream, end, span)
    else:
        await drain(stream, span)
        if span.bytes != n:
            raise CutShort(f"{span.bytes} of {n} bytes arrived")


async def drained(stream) -> None:
    """Wait until the server has read everything, which its end of data says."""
    with trio.move_on_after(DRAIN_SECONDS) as limit:
        await drain(stream, Span())
    if limit.cancelled_caught:
        raise TimeoutError(f"the server had not read everything after {DRAIN_SECONDS} s")


async def cut(stream, end: float, span: Span) -> None:
    """Read until the instant end and reset the stream; span keeps what had come until then."""
    with trio.move_on_after(max(0.0, end - time.perf_counter())) as limit:
        await drain(stream, span)
    if not limit.cancelled_caught:
        raise CutShort("the server ended a download that has no end")
    await stream.reset()
