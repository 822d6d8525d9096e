"""The cost of ssh by itself: through the same sshd, a program that copies bytes into memory that is there, and back."""

import contextlib
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.processes import FINDS_BENCHMARKS
from benchmarks.rivals import Caller, bare_tcp
from benchmarks.sshd import SSHD, Host

NAME = "bare ssh"
NEEDS = ()
PROGRAMS = {"sshd": SSHD}
_COMMAND = "BENCHMARKS_SSH"


@contextlib.contextmanager
def serve(folder: Path) -> Iterator[dict[str, str]]:
    """An sshd."""
    (folder / "host").mkdir()
    host = Host(folder / "host", {})
    there = [f"PYTHONPATH={FINDS_BENCHMARKS['PYTHONPATH']}", sys.executable, "-m", __name__]
    command = ["ssh", "-T", "-p", str(host.port), "127.0.0.1", shlex.join(["env", *there])]
    try:
        yield {"PATH": host.env["PATH"], _COMMAND: shlex.join(command)}
    finally:
        host.close()


@contextlib.contextmanager
def connect() -> Iterator[Caller]:
    """A client, on a socket that is the standard input and output of an ssh."""
    here, there = socket.socketpair()
    with here, there:
        process = subprocess.Popen(shlex.split(os.environ[_COMMAND]), stdin=there.fileno(), stdout=there.fileno())
        there.close()
        try:
            yield bare_tcp.caller_on(here)
        finally:
            process.terminate()
            process.wait()


def main() -> None:
    """Runs on the other machine."""

    def receive_into(view: memoryview) -> int:
        return os.readv(0, [view])

    def send(data: bytes | bytearray) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.flush()

    bare_tcp.keep(receive_into, send)


if __name__ == "__main__":
    main()
