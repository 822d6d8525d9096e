"""The proxy `jitserver connect-stdio` between sshd's pipes and the daemon's socket."""

import contextlib
import os
import select
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from jitserver.cli import connect_stdio

WHOLE = bytes(range(256)) * (32 << 10)  # 8 MiB, longer than all buffers


class Joined:
    """A pipe and a socket, joined as in that command; `far` is the daemon's end."""

    def __init__(self, pass_on: Callable[[int, int], None], blocking: bool, from_pipe: bool) -> None:
        self.reading, self.writing = os.pipe()
        self.near, self.far = socket.socketpair()
        self.near.setblocking(blocking)
        ends = (self.reading, self.near.fileno()) if from_pipe else (self.near.fileno(), self.writing)
        self.thread = threading.Thread(target=self._work, args=(pass_on, *ends), daemon=True)
        self.thread.start()

    def _work(self, pass_on: Callable[[int, int], None], source: int, target: int) -> None:
        with contextlib.suppress(OSError):
            pass_on(source, target)

    def close(self) -> None:
        self.far.close()
        for end in (self.reading, self.writing):
            with contextlib.suppress(OSError):
                os.close(end)
        self.thread.join(60)
        self.near.close()


@pytest.fixture
def joined() -> Iterator[Callable[..., Joined]]:
    made: list[Joined] = []

    def make(pass_on: Callable[[int, int], None], blocking: bool, from_pipe: bool) -> Joined:
        made.append(Joined(pass_on, blocking, from_pipe))
        return made[-1]

    yield make
    for each in made:
        each.close()


WAYS = pytest.mark.parametrize(("pass_on", "blocking"), [(connect_stdio._splice, False), (connect_stdio._copy, True)])


def write(pipe: int, data: bytes) -> None:
    with open(pipe, "wb", closefd=False) as file:
        file.write(data)


@WAYS
@pytest.mark.parametrize("from_pipe", [True, False], ids=["to the daemon", "from the daemon"])
def test_all_bytes_arrive_in_order(
    joined: Callable[..., Joined], pass_on: Callable[[int, int], None], blocking: bool, from_pipe: bool
) -> None:
    ends = joined(pass_on, blocking, from_pipe)
    send, args = (write, (ends.writing, WHOLE)) if from_pipe else (ends.far.sendall, (WHOLE,))
    writer = threading.Thread(target=send, args=args)
    writer.start()
    with ends.far.makefile("rb") if from_pipe else open(ends.reading, "rb", closefd=False) as file:
        assert file.read(len(WHOLE)) == WHOLE
    writer.join(60)
    os.close(ends.writing) if from_pipe else ends.far.close()
    ends.thread.join(60)
    assert not ends.thread.is_alive(), "the end was not noticed"


def test_no_byte_between_pipes_and_the_socket_is_copied(
    joined: Callable[..., Joined], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> int:
        raise AssertionError("bytes are copied")

    read = os.read
    for name in ("read", "readv", "write", "writev"):
        monkeypatch.setattr(connect_stdio.os, name, refused)
    ends = joined(connect_stdio._splice, False, from_pipe=False)
    ends.far.sendall(b"some bytes")
    assert read(ends.reading, 100) == b"some bytes"


def test_a_daemon_that_does_not_read_does_not_stop_sshd(joined: Callable[..., Joined]) -> None:
    """sshd never waits for a pipe: it also has keepalives to answer. But it would for the lock of one."""
    ends = joined(connect_stdio._splice, False, from_pipe=True)
    os.set_blocking(ends.writing, False)

    def fill() -> None:
        poller = select.poll()
        poller.register(ends.writing, select.POLLOUT)
        while poller.poll(500):
            with contextlib.suppress(BlockingIOError):
                os.write(ends.writing, bytes(1 << 20))

    sshd = threading.Thread(target=fill, daemon=True)
    sshd.start()
    sshd.join(60)
    assert not sshd.is_alive()
