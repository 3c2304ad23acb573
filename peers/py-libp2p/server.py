"""The serving side of both perf protocols."""

import math
import signal
import sys

import trio

from node import multiaddr_of, running_host
from perf import HEADER_BYTES, PERF_010, PERF_100, Span, drain, read_exactly, send

BLOCK = bytes(128_000)  # as the clients of libp2p-perf have it


async def serve(host: str, port: int, security: str, seed: int, emit) -> None:
    """Serve until SIGTERM; emit gets the ready line and a result line for each finished stream."""
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async with running_host(security, multiaddr_of(host, port), seed) as node:
            for protocol in (PERF_010, PERF_100):
                node.set_stream_handler(protocol, handler(protocol, emit))
            emit({"event": "ready", "address": f"{node.get_transport_addrs()[0]}/p2p/{node.get_id()}"})
            await anext(signals)


def handler(protocol: str, emit):
    """Make the handler of a protocol's streams."""

    async def handle(stream) -> None:
        emit(await answer(stream, protocol))

    return handle


async def answer(stream, protocol: str) -> dict:
    """Serve one stream and return the result line; a run that was cut short is marked incomplete."""
    up, down = Span(), Span()
    incomplete = {}
    try:
        wanted = int.from_bytes(await read_exactly(stream, HEADER_BYTES), "big") if protocol == PERF_100 else 0
        await drain(stream, up)
        await send(stream, BLOCK, wanted, math.inf, down)
        await stream.close()
    except Exception as error:  # whatever the library raises, this stream is over and the next is not
        incomplete = {"incomplete": True}
        print(f"{protocol}: {type(error).__name__}: {error}", file=sys.stderr)
        await stream.reset()
    figures = {"received_bytes": up.bytes, "sent_bytes": down.bytes, "seconds": up.seconds + down.seconds}
    return {"event": "result", "role": "server", "protocol": protocol} | figures | incomplete
