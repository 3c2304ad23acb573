"""The wisp-server-python peer: the library's own command line, as a process of its own, with the
flags and the JSON event lines of docs/peers.md around it. It plays the server only; the library
has no client.

The library runs its server until it is interrupted and says nothing on stdout. So this program
starts it, asks for its page until it answers, prints the ready line, and on SIGTERM interrupts it
(SIGINT): on SIGTERM alone the library's main process would die and leave its workers behind.
"""

import argparse
import http.client
import importlib.metadata
import json
import platform
import signal
import socket
import subprocess
import sys
import time

READY_SECONDS = 20
STOP_SECONDS = 5


def emit(event, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)


class Terminated(Exception):
    """SIGTERM arrived: the order to end, not a failure."""


def on_sigterm(_signal, _frame):
    raise Terminated


def host_port(text):
    """Split HOST:PORT, with brackets round an IPv6 address."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"HOST:PORT wanted, not {text}")
    return host.strip("[]"), int(port)


def free_port(host):
    """A port that is free now: the library cannot tell which one it got for port 0."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]


def start(host, port):
    """Start the library's server with its defaults (a worker for each CPU), loopback allowed."""
    command = [
        sys.executable, "-W", "ignore::DeprecationWarning", "-m", "wisp.server",
        "--host", host, "--port", str(port),
        "--allow-loopback", "--allow-private", "--log-level", "error",
    ]  # fmt: skip
    # A shell starts background jobs with SIGINT ignored, and children inherit that.
    restore = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    return subprocess.Popen(command, stdout=sys.stderr, preexec_fn=restore)


def answers(host, port):
    """Whether the server answers HTTP on host:port (a bare connect would make it log an error)."""
    page = http.client.HTTPConnection(host, port, timeout=1)
    try:
        page.request("GET", "/")
        return page.getresponse().status == 200
    except OSError:
        return False
    finally:
        page.close()


def wait_ready(library, host, port):
    deadline = time.monotonic() + READY_SECONDS
    while not answers(host, port):
        if library.poll() is not None:
            raise RuntimeError(f"the server ended with code {library.returncode} before it was ready")
        if time.monotonic() > deadline:
            raise RuntimeError(f"the server did not answer on {host}:{port} in {READY_SECONDS} s")
        time.sleep(0.02)


def stop(library):
    library.send_signal(signal.SIGINT)
    try:
        library.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        library.kill()


def serve(host, port):
    """Run the server until SIGTERM (returns 0) or until it ends by itself (returns 1)."""
    signal.signal(signal.SIGTERM, on_sigterm)
    port = port or free_port(host)
    library = start(host, port)
    try:
        wait_ready(library, host, port)
        name = f"[{host}]" if ":" in host else host
        emit("ready", address=f"ws://{name}:{port}/")
        emit("error", message=f"the server ended by itself with code {library.wait()}")
        return 1
    except Terminated:
        return 0
    except RuntimeError as error:
        emit("error", message=str(error))
        return 1
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # ending is under way
        stop(library)


def main():
    parser = argparse.ArgumentParser(prog="peer.py")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("server").add_argument("--listen", type=host_port, required=True)
    commands.add_parser("client")
    commands.add_parser("version")
    args, rest = parser.parse_known_args()
    if args.command == "client":
        emit("error", message="wisp-python is a server only")
        return 127
    if rest:
        parser.error(f"unknown arguments: {' '.join(rest)}")
    if args.command == "version":
        print(f"wisp-python {importlib.metadata.version('wisp-python')} (python {platform.python_version()})")
        return 0
    return serve(*args.listen)


if __name__ == "__main__":
    sys.exit(main())
