"""Limits for peers that send slowly."""

import socket

import pytest

from jitclient.wire import stream


def test_a_peer_that_sends_a_byte_now_and_then_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 61
        return now

    monkeypatch.setattr(stream, "monotonic", clock)
    ours, theirs = socket.socketpair()
    receiver = stream.WireStream(ours)
    receiver.set_patience(0.01)  # the kernel returns what has come by then
    theirs.send(b"xx")
    with theirs, pytest.raises(TimeoutError, match="sent 2 of 8 bytes of a frame in 60 s"):
        receiver.read_rest(memoryview(bytearray(8)))
    receiver.close()
