"""Frames over pairs of sockets and pipes, and peers that are silent, slow or wrong."""

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from jitclient.errors import ProtocolError
from jitclient.pools.frames import Frames, Silent
from jitclient.pools.messages import Alive, Calls, ToWorker, Wanted


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def frames_of(end: socket.socket, patience: float = 60.0) -> Frames:
    return Frames(end.fileno(), end.fileno(), patience)


@pytest.mark.parametrize("size", [0, 3, 5 << 20])
def test_a_message_arrives_with_its_body(ends: tuple[socket.socket, socket.socket], size: int) -> None:
    here, there = map(frames_of, ends)
    body = os.urandom(size)
    sender = threading.Thread(target=here.send, args=(Calls(b"digest", 7), body))
    sender.start()
    message, received = there.receive(ToWorker)  # type: ignore[arg-type]
    sender.join()
    assert (message, bytes(received)) == (Calls(b"digest", 7), body)


def test_a_peer_that_has_closed_is_an_end(ends: tuple[socket.socket, socket.socket]) -> None:
    here, there = ends
    there.close()
    with pytest.raises(EOFError):
        frames_of(here).receive(Alive)
    with pytest.raises(OSError, match="Broken pipe"):
        frames_of(here).send(Alive())


def test_a_peer_that_does_nothing_is_silent(ends: tuple[socket.socket, socket.socket]) -> None:
    frames = frames_of(ends[0], patience=0.01)
    with pytest.raises(Silent, match="written nothing"):
        frames.receive(Alive)
    with pytest.raises(Silent, match="not read"):
        frames.send(Alive(), bytes(64 << 20))


def test_bytes_that_are_no_frame_are_an_error(ends: tuple[socket.socket, socket.socket]) -> None:
    here, there = ends
    there.sendall(b"Welcome to this machine, which says more than sixteen bytes")
    with pytest.raises(ProtocolError, match="a frame's message has"):
        frames_of(here).receive(Alive)


def test_a_message_of_another_kind_is_an_error(ends: tuple[socket.socket, socket.socket]) -> None:
    here, there = map(frames_of, ends)
    there.send(Wanted("x"))
    with pytest.raises(ProtocolError, match="holds no message"):
        here.receive(Alive)
