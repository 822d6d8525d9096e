"""The least that a server can do: a Unix socket, pickle protocol 5, one `jax.jit` and a loop for each client.

Large arrays travel out of band, so that neither side copies them into a message.
"""

import contextlib
import os
import pickle
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.processes import FINDS_BENCHMARKS, environment, running
from benchmarks.rivals import Caller

NAME = "bare socket"
NEEDS = ("jax",)
_PATH = "BENCHMARKS_SOCKET"
_OUT_OF_BAND = 64 << 10
_AT_ONCE = 64  # buffers in one system call


@contextlib.contextmanager
def serve(folder: Path) -> Iterator[dict[str, str]]:
    """The server, at a socket in `folder`."""
    path = folder / "s.sock"
    with running(["-m", __name__, str(path)], environment(folder, **FINDS_BENCHMARKS), folder, path.exists):
        yield {_PATH: str(path)}


@contextlib.contextmanager
def connect() -> Iterator[Caller]:
    """A client. Functions travel by reference: the server can import them."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(os.environ[_PATH])

        def ask(*message: Any) -> Any:
            send(sock, message)
            answer, error = receive(sock)
            if error:
                raise RuntimeError(error)
            return answer

        def jit(fun: Callable[..., Any]) -> Callable[..., Any]:
            number = ask(None, fun)
            return lambda *args: ask(number, args)

        yield Caller(jit)


def send(sock: socket.socket, message: Any) -> None:
    """Sends a message: the sizes of its parts, its pickle, its large buffers."""
    large: list[memoryview] = []

    def in_band(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes >= _OUT_OF_BAND:
            large.append(raw)
        return raw.nbytes < _OUT_OF_BAND

    body = pickle.dumps(message, 5, buffer_callback=in_band)
    sizes = [len(body), *(raw.nbytes for raw in large)]
    parts = [memoryview(struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes)), memoryview(body), *large]
    while parts:
        sent = sock.sendmsg(parts[:_AT_ONCE])
        while parts and sent >= parts[0].nbytes:
            sent -= parts.pop(0).nbytes
        if sent:
            parts[0] = parts[0][sent:]


def receive(sock: socket.socket) -> Any:
    """Receives a message.

    Raises:
        EOFError: the other side has gone.
    """
    (count,) = struct.unpack("<I", _exactly(sock, 4))
    sizes = struct.unpack(f"<{count}Q", _exactly(sock, 8 * count))
    body, *large = [_exactly(sock, size) for size in sizes]
    return pickle.loads(body, buffers=large)


def _exactly(sock: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        got = sock.recv_into(view)
        if not got:
            raise EOFError("the other side has gone")
        view = view[got:]
    return data


def main(path: Path) -> None:
    """Runs the server."""
    import jax  # noqa: F401  (before the first client waits for it)

    fresh = path.with_suffix(".new")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(fresh))
        listener.listen(128)
        fresh.rename(path)
        while True:
            threading.Thread(target=_answer, args=(listener.accept()[0],), daemon=True).start()


def _answer(sock: socket.socket) -> None:
    import jax
    import numpy as np

    programs: list[Callable[..., Any]] = []
    with sock, contextlib.suppress(EOFError, ConnectionError):
        while True:
            number, what = receive(sock)
            try:
                if number is None:
                    programs.append(jax.jit(what))
                    answer: Any = len(programs) - 1
                else:
                    answer = jax.tree.map(np.asarray, programs[number](*what))
            except Exception as error:
                send(sock, (None, repr(error)))
            else:
                send(sock, (answer, ""))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
