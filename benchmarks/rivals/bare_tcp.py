"""The cost of a network by itself: a TCP socket that copies bytes into memory that is there, and back. No functions."""

import contextlib
import os
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
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
    """A client."""
    with socket.create_connection(("127.0.0.1", int(os.environ[_PORT]))) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield caller_on(sock)


def caller_on(sock: socket.socket) -> Caller:
    """A client on a socket. What it fetches is valid until it fetches again."""
    warm = np.empty(0, np.uint8)

    def put(x: Any) -> Any:
        sock.sendall(_SIZE.pack(x.nbytes))
        sock.sendall(x.data.cast("B"))
        _fill(sock.recv_into, memoryview(bytearray(1)))  # it is there
        return x.dtype, x.nbytes

    def look(remote: Any) -> Any:
        nonlocal warm
        dtype, nbytes = remote
        if len(warm) != nbytes:
            warm = np.zeros(nbytes, np.uint8)
        sock.sendall(_SIZE.pack(0))
        _fill(sock.recv_into, warm.data)
        return warm.view(dtype)

    return Caller(same, put, same, look)


def main(folder: Path) -> None:
    """Runs the server, and tells the port in a file."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        (folder / "port.new").write_text(str(listener.getsockname()[1]))
        (folder / "port.new").rename(folder / "port")
        while True:
            sock, _ = listener.accept()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=_keep, args=(sock,), daemon=True).start()


def _keep(sock: socket.socket) -> None:
    with sock, contextlib.suppress(ConnectionError):
        keep(sock.recv_into, sock.sendall)


def keep(receive_into: Callable[[memoryview], int], send: Callable[[bytes | bytearray], Any]) -> None:
    """A size, and so many bytes: keeps them. The size 0: sends them back. Until the other side has gone."""
    warm, size = bytearray(), bytearray(_SIZE.size)
    with contextlib.suppress(EOFError):
        while True:
            _fill(receive_into, memoryview(size))
            (nbytes,) = _SIZE.unpack(size)
            if not nbytes:
                send(warm)
                continue
            if len(warm) != nbytes:
                warm = bytearray(nbytes)
            _fill(receive_into, memoryview(warm))
            send(b".")


def _fill(receive_into: Callable[[memoryview], int], view: memoryview) -> None:
    while view:
        got = receive_into(view)
        if not got:
            raise EOFError("the other side has gone")
        view = view[got:]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
