"""A client of a daemon on another host: `python client.py NETWORK` prints {case: how it failed, or nothing}."""

import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import numpy as np
from networks import NETWORKS

import jitclient
from jitclient.core.settings import settings
from jitclient.session import handshake, process
from jitclient.wire.address import Address
from jitclient.wire.messages import Status, Verb

MIB = 1 << 20
SKIPPED = "skipped: "
RANDOM = np.random.default_rng(5)


class Line(socket.socket):
    """A connection that breaks on request, when half of a large array has gone over it."""

    breaks = ""
    buffers = 0
    opened = 0

    def sendmsg(self, parts: Any, *rest: Any) -> int:
        whole = sum(map(len, parts))
        if Line.breaks == "sending" and whole > MIB:
            self.sendall(b"".join(parts)[: whole // 2])
            self._break()
        return super().sendmsg(parts, *rest)

    def recv_into(self, view: Any, *rest: Any) -> int:
        if Line.breaks == "receiving" and len(view) > MIB:
            super().recv_into(view[: len(view) // 2], *rest)  # not all of that may be there
            self._break()
        return super().recv_into(view, *rest)

    def _break(self) -> None:
        Line.breaks = ""
        self.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # the peer sees a reset
        self.close()
        raise ConnectionResetError("the cable was pulled")


def dial(where: tuple[str, int], token: str) -> Line:
    line = Line(socket.AF_INET)
    if Line.buffers:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, Line.buffers)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, Line.buffers)
    line.settimeout(30)
    line.connect(where)
    line.sendall(token.encode())
    Line.opened += 1
    return line


# ---- the cases


@jitclient.jit
def add(x: Any, y: Any) -> Any:
    return x + y


@jitclient.jit
def flipped(x: Any) -> Any:
    return ~x


@jitclient.jit(donate_argnums=0)
def taken(x: Any) -> Any:
    return x + 1


@jitclient.jit
def fails(x: Any) -> Any:
    if x.shape == (3,):
        raise KeyError("three")
    return x


def noise(nbytes: int) -> Any:
    return RANDOM.integers(0, 256, nbytes, np.uint8)


def assert_there_and_back(nbytes: int) -> None:
    x = noise(nbytes)
    assert np.array_equal(np.asarray(jitclient.device_put(x)), x)
    assert np.array_equal(np.asarray(flipped(x)), ~x)


def small_calls() -> None:
    for n in range(200):
        assert float(add(np.float32(n), np.float32(1))) == n + 1


def resident_arrays() -> None:
    x = jitclient.device_put(np.zeros((8, 8), np.float32))
    looks = {}
    for n in range(1, 2001):
        x = add(x, np.float32(1))
        if n % 500 == 0:
            looks[n] = x
    assert {n: np.asarray(look)[7, 7] for n, look in looks.items()} == {n: n for n in looks}


def queued_large_arrays() -> None:
    parts = [noise(2 * MIB) for _ in range(16)]
    total = jitclient.device_put(np.zeros(2 * MIB, np.uint8))
    for part in parts:
        total = add(total, part)
    assert np.array_equal(np.asarray(total), sum(parts, np.zeros(2 * MIB, np.uint8)))


def large_arrays() -> None:
    for nbytes in (MIB, MIB + 1, 5 * MIB - 7, 16 * MIB, 64 * MIB):
        assert_there_and_back(nbytes)


def many_arrays_at_once() -> None:
    given = [noise(size) for size in (1, 100_000, 3 * MIB, 65_536, 65_537) * 8]
    for sent, fetched in zip(given, jitclient.device_get(jitclient.device_put(given)), strict=True):
        assert np.array_equal(sent, fetched)


def donation() -> None:
    x = jitclient.device_put(np.ones(4 * MIB, np.float32))
    y = taken(x)
    assert x.is_deleted()
    assert np.asarray(y)[-1] == 2
    assert_raises(RuntimeError, lambda: np.asarray(x))


def errors() -> None:
    assert_raises(KeyError, lambda: fails(np.zeros(3, np.float32)))
    assert_raises(TypeError, lambda: add(np.zeros(3), np.zeros(4)))
    assert float(fails(np.float32(7))) == 7


def break_while_sending() -> None:
    x, y = noise(8 * MIB), noise(2 * MIB)
    kept, generation = jitclient.device_put(y), process.session().generation
    with broken("sending"):
        assert np.array_equal(np.asarray(flipped(x)), ~x)  # it had not come whole the first time, and was not run
    with broken("sending"):
        assert np.array_equal(np.asarray(jitclient.device_put(x)), x)
    assert np.array_equal(np.asarray(kept), y)
    assert process.session().generation == generation, "a new session replaced the first"


def break_while_receiving() -> None:
    x, generation = noise(8 * MIB), process.session().generation
    y = flipped(jitclient.device_put(x))
    with broken("receiving"):
        assert np.array_equal(np.asarray(y), ~x)
    assert process.session().generation == generation, "a new session replaced the first"


def small_buffers() -> None:
    with mock.patch.object(Line, "buffers", 4096):
        process.session().disconnect()
        resident_arrays()
        assert_there_and_back(4 * MIB)
    process.session().disconnect()


def slow_link() -> None:
    if why := network.slow_down():
        raise Skipped(why)
    small_calls()
    resident_arrays()
    assert_there_and_back(8 * MIB)


def nothing_is_shared() -> None:
    assert lends() == (False, False)
    with contextlib.closing(handshake.reach(settings()).connection) as connection:
        assert_raises(jitclient.DaemonLost, lambda: connection.lease(MIB))  # who asks all the same is cut off
    assert process.session()._pipeline.blocks is None
    status = handshake.ask(settings(), Verb.STATUS, None, Status)
    assert (status.shared_bytes, status.lent_bytes) == (0, 0)


def memory_is_lent() -> None:
    assert lends() == (True, True)


CASES = (
    small_calls,
    resident_arrays,
    queued_large_arrays,
    large_arrays,
    many_arrays_at_once,
    donation,
    errors,
    break_while_sending,
    break_while_receiving,
    small_buffers,
    slow_link,
    nothing_is_shared,
)


# ---- details


def lends() -> tuple[bool, bool]:
    """Whether the daemon would lend memory, and whether the client would take it."""
    reached = handshake.reach(settings())
    with contextlib.closing(reached.connection) as connection:
        connection.request(Verb.GOODBYE, msgspec.msgpack.encode(None))
        return reached.welcome.lends, connection.can_share()


class Skipped(Exception):
    pass


@contextlib.contextmanager
def broken(when: str) -> Iterator[None]:
    """The connection breaks once, and another is opened."""
    before, Line.breaks = Line.opened, when
    try:
        yield
        assert not Line.breaks, "nothing broke"
        assert Line.opened == before + 1
    finally:
        Line.breaks = ""


def assert_raises(kind: type[BaseException], action: Callable[[], Any]) -> None:
    try:
        action()
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}")


def outcome(case: Callable[[], None]) -> str:
    try:
        case()
    except Skipped as why:
        return f"{SKIPPED}{why}"
    except Exception:
        return traceback.format_exc()
    return ""


def main() -> None:
    path = os.environ["JITSERVER_ADDRESS"].removeprefix("unix:")
    daemon = subprocess.Popen(
        [*network.before_daemon, sys.executable, str(Path(__file__).with_name("daemon.py")), path, network.listens],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert daemon.stdin is not None
    assert daemon.stdout is not None
    with daemon.stdin, daemon.stdout:
        port, token = daemon.stdout.readline().split()
        network.connect(daemon.pid)

        def over_tcp(_: Address, seconds: float = 30) -> Line:
            return dial((network.host, int(port)), token)

        with mock.patch.object(Address, "connect", over_tcp):
            found = {case.__name__: outcome(case) for case in CASES if case is not slow_link or network.can_be_slow}
            process.session().close()
        found["but_over_a_unix_socket"] = outcome(memory_is_lent)
    daemon.wait(60)
    print(json.dumps(found))


if __name__ == "__main__":
    network = NETWORKS[sys.argv[1]]()
    main()
