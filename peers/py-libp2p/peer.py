"""The command line of the py-libp2p peer: reads the flags, runs one role, and turns what comes of it into the
JSON event lines and the exit code that docs/peers.md asks for. Results go to stdout, the rest to stderr."""

import argparse
import importlib.metadata
import json
import platform
import re
import sys


class UsageError(Exception):
    """A wrong command line: exit code 2."""


class Unsupported(Exception):
    """What this peer or its library does not have: exit code 127."""


class Parser(argparse.ArgumentParser):
    def error(self, message: str):
        raise UsageError(message)


def emit(event: dict) -> None:
    print(json.dumps(event), flush=True)


def at_least_one(text: str) -> int:
    if (n := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return n


def host_port(text: str) -> tuple[str, int]:
    """Split HOST:PORT, with brackets round an IPv6 address."""
    match = re.fullmatch(r"(?:\[([^\]]+)\]|([^:/]+)):(\d{1,5})", text)
    if not match or int(match[3]) > 65535:
        raise argparse.ArgumentTypeError(f"want HOST:PORT, not {text}")
    return match[1] or match[2], int(match[3])


def parse(args: list[str]) -> argparse.Namespace:
    parser = Parser(prog="peer.py", description="py-libp2p as a server and a client of libp2p's perf protocols")
    roles = parser.add_subparsers(dest="role", required=True, parser_class=Parser)
    roles.add_parser("version")
    server = roles.add_parser("server")
    server.add_argument("--listen", type=host_port, required=True)
    server.add_argument("--seed", type=int, default=0)
    client = roles.add_parser("client")
    client.add_argument("--connect", required=True, help="multiaddr with the peer id")
    client.add_argument("--protocol", default="/perf/1.0.0")
    client.add_argument("--seconds", type=float, default=10)
    client.add_argument("--bytes", type=at_least_one)
    client.add_argument("--download", action="store_true")
    client.add_argument("--block", type=at_least_one, default=128_000)
    client.add_argument("--streams", type=at_least_one, default=1)
    client.add_argument("--connections", type=at_least_one, default=1)
    for role in (server, client):
        role.add_argument("--security", default="noise")
    return parser.parse_args(args)


def check(options: argparse.Namespace) -> None:
    """Raise Unsupported for what cannot be had, before anything is imported or dialed."""
    if options.security not in ("noise", "plaintext"):
        raise Unsupported(f"security {options.security}: this peer has noise and plaintext")
    if options.role == "server":
        return
    if options.protocol not in ("/perf/0.1.0", "/perf/1.0.0"):
        raise Unsupported(f"protocol {options.protocol}: this peer has /perf/0.1.0 and /perf/1.0.0")
    if options.download and options.protocol == "/perf/0.1.0":
        raise Unsupported("/perf/0.1.0 has no download")
    if "/p2p/" not in options.connect:
        raise Unsupported(f"dial {options.connect}: py-libp2p dials peers whose id it knows; want a multiaddr with /p2p/")


def run(args: list[str]) -> None:
    options = parse(args)
    if options.role == "version":
        print(f"py-libp2p {importlib.metadata.version('libp2p')} (python {platform.python_version()})")
        return
    check(options)
    import trio  # the library takes its time, so what is above does without

    if options.role == "server":
        import server

        trio.run(server.serve, *options.listen, options.security, options.seed, emit)
    else:
        import client

        emit({"event": "result", "role": "client", "protocol": options.protocol} | trio.run(client.run, options))


def first_of(error: BaseException) -> BaseException:
    """Return the first error of a group, as trio's nurseries raise them."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def main() -> int:
    try:
        run(sys.argv[1:])
    except Exception as group:
        error = first_of(group)
        emit({"event": "error", "message": str(error) or type(error).__name__})
        return {UsageError: 2, Unsupported: 127}.get(type(error), 1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
