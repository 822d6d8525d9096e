"""What a network costs by itself: a TCP socket that copies bytes into memory that is there, and back. No functions."""

import contextlib
import os
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.processes import FINDS_BENCHMARKS, environment, running
from benchmarks.rivals import Caller, same

NAME = "bare TCP socket"
NEEDS = ()
_PORT = "BENCHMARKS_PORT"
_SIZE = struct.Struct("<Q")


@contextlib.contextmanager
def serve(folder: Path) -> Iterator[dict[str, str]]:
    """The server, at a port of loopback."""
    port = folder / "port"
    with running(["-m", __name__, str(folder)], environment(folder, **FINDS_BENCHMARKS), folder, port.exists):
        yield {_PORT: port.read_text()}


@contextlib.contextmanager
def connect() -> Iterator[Caller]:
    """A client. What it fetches is valid until it fetches again."""
    with socket.create_connection(("127.0.0.1", int(os.environ[_PORT]))) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        warm = np.empty(0, np.uint8)

        def put(x: Any) -> Any:
            sock.sendall(_SIZE.pack(x.nbytes))
            sock.sendall(x.data.cast("B"))
            _fill(sock, memoryview(bytearray(1)))  # it is there
            return x.dtype, x.nbytes

        def look(remote: Any) -> Any:
            nonlocal warm
            dtype, nbytes = remote
            if len(warm) != nbytes:
                warm = np.zeros(nbytes, np.uint8)
            sock.sendall(_SIZE.pack(0))
            _fill(sock, warm.data)
            return warm.view(dtype)

        yield Caller(same, put, same, look)


def main(folder: Path) -> None:
    """Runs the server, and tells the port in a file."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        (folder / "port.new").write_text(str(listener.getsockname()[1]))
        (folder / "port.new").rename(folder / "port")
        while True:
            threading.Thread(target=_keep, args=(listener.accept()[0],), daemon=True).start()


def _keep(sock: socket.socket) -> None:
    """A size, and so many bytes: keeps them. The size 0: sends them back."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    warm, size = bytearray(), bytearray(_SIZE.size)
    with sock, contextlib.suppress(EOFError, ConnectionError):
        while True:
            _fill(sock, memoryview(size))
            (nbytes,) = _SIZE.unpack(size)
            if not nbytes:
                sock.sendall(warm)
                continue
            if len(warm) != nbytes:
                warm = bytearray(nbytes)
            _fill(sock, memoryview(warm))
            sock.sendall(b".")


def _fill(sock: socket.socket, view: memoryview) -> None:
    while view:
        got = sock.recv_into(view)
        if not got:
            raise EOFError("the other side has gone")
        view = view[got:]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
