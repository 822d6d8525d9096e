"""Reaching a daemon: find it or start it, greet it, and refuse it where the two sides do not fit."""

import contextlib
import dataclasses
import os
import platform
import socket
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from jitclient.errors import (
    DaemonDraining,
    DaemonLost,
    DaemonSilent,
    DaemonUnavailable,
    Incompatible,
    JitserverError,
    ProtocolError,
)
from jitclient.sessions.failures import answered
from jitclient.settings import Settings
from jitclient.version import __version__
from jitclient.wire.address import Address, default_addresses
from jitclient.wire.messages import PROTOCOL, Hello, Verb, Welcome

if TYPE_CHECKING:
    from jitclient.wire.connection import ClientConnection

_Answer = TypeVar("_Answer")
_ENDING_SECONDS = 2.0
_POLL_SECONDS = 0.02
_RETRY_SHARE = 9  # a daemon that cannot be had costs its callers a tenth of their time at most

MUST_AGREE = ("jax", "jaxlib")
"""Packages whose versions must be the daemon's, where the client has loaded them."""


@dataclasses.dataclass(frozen=True)
class Reached:
    """A daemon that answered."""

    connection: "ClientConnection"
    address: Address
    welcome: Welcome


@dataclasses.dataclass(frozen=True)
class Identity:
    """Who greets: the token of a session to go on with, or to join; and a name for whoever numbers its Runs."""

    token: bytes = b""
    client: bytes = dataclasses.field(default_factory=lambda: os.urandom(8))


class Finder:
    """Reaches a daemon whenever a session asks; one that cannot be had is not tried for again at each call."""

    def __init__(self, chosen: Settings) -> None:
        self._settings = chosen
        self._refusal: DaemonUnavailable | Incompatible | None = None
        self._until = 0.0  # the refusal is taken for granted

    def reach(self, who: Identity) -> Reached:
        """What the function of that name does, or what it raised a short while ago."""
        start = time.monotonic()
        if self._refusal is not None and start < self._until:
            raise type(self._refusal)(*self._refusal.args)
        try:
            reached = reach(self._settings, who)
        except (DaemonUnavailable, Incompatible) as error:
            now = time.monotonic()
            self._refusal, self._until = error, now + _RETRY_SHARE * (now - start)
            raise
        self._refusal = None
        return reached


def reach(chosen: Settings, who: "Identity | None" = None) -> Reached:
    """Connects to a daemon, starts one where none answers, and opens a session there, or resumes that of `who`.

    Raises:
        DaemonUnavailable: no daemon answers, and none could be started.
        DaemonSilent: it does not answer, but it is there.
        Incompatible: it runs another version of something that matters.
    """
    return _past_an_end(lambda: _reach(chosen, who or Identity()))


def _past_an_end(attempt: Callable[[], _Answer]) -> _Answer:
    """Tries again while a daemon is ending, whose socket goes a moment later."""
    deadline = time.monotonic() + _ENDING_SECONDS
    while True:
        try:
            return attempt()
        except DaemonSilent:
            raise
        except (DaemonLost, DaemonDraining) as error:
            if time.monotonic() > deadline:
                raise DaemonUnavailable(f"the daemon is ending: {error}") from error
            time.sleep(_POLL_SECONDS)


def _reach(chosen: Settings, who: Identity) -> Reached:
    started = None
    try:
        connection, address = _connect(chosen)
    except DaemonUnavailable:
        from jitclient.sessions import launch  # of no use where a daemon answers

        address = _addresses(chosen)[0]
        if chosen.autostart:
            sock, started = launch.start(address)
        elif launch.awaited(address):
            sock = address.connect()
        else:
            raise
        connection = _over(sock)
    try:
        welcome = _greet(connection, who)
    except BaseException:
        connection.close()
        raise
    if started is not None:
        print(f"jitserver: started a daemon (pid {started}, {address})", file=sys.stderr)
    return Reached(connection, address, welcome)


def ask(chosen: Settings, verb: Verb, message: Any, answer: Any) -> Any:
    """What the daemon that runs answers to a question that may be asked twice. Starts none by itself.

    Raises:
        DaemonUnavailable: no daemon answers.
        Incompatible: it does not understand the question.
    """
    return _past_an_end(lambda: ask_once(chosen, verb, message, answer))


def ask_once(chosen: Settings, verb: Verb, message: Any, answer: Any) -> Any:
    """What the daemon that runs answers to one question, over a connection without a session. Starts none by itself.

    Raises:
        DaemonLost: it ended before it answered.
        DaemonUnavailable: no daemon answers.
        Incompatible: it does not understand the question.
    """
    connection = _connect(chosen)[0]
    try:
        return answered(connection.request(verb, msgspec.msgpack.encode(message)), answer)
    except (msgspec.MsgspecError, ProtocolError) as error:
        raise Incompatible(f"the daemon is of another version ({error}); `jitserver restart` it") from error
    finally:
        connection.close()


def _connect(chosen: Settings) -> "tuple[ClientConnection, Address]":
    addresses = _addresses(chosen)
    for address in addresses:
        with contextlib.suppress(DaemonUnavailable):
            return _over(address.connect()), address
    raise DaemonUnavailable(f"no daemon answers at {addresses[0]}; `jitserver start` starts one")


def _over(sock: socket.socket) -> "ClientConnection":
    from jitclient.wire.channel import WireChannel  # with rpyc, which is of no use where no daemon answers
    from jitclient.wire.connection import ClientConnection
    from jitclient.wire.stream import WireStream

    return ClientConnection(WireChannel(WireStream(sock)))


def _addresses(chosen: Settings) -> list[Address]:
    try:
        return default_addresses(chosen.address)
    except OSError as error:
        raise DaemonUnavailable(f"there can be no folder for a daemon's socket: {error}") from error


def _greet(connection: "ClientConnection", who: Identity) -> Welcome:
    hello = Hello(
        protocol=PROTOCOL,
        version=__version__,
        python=platform.python_version(),
        loaded={name: sys.modules[name].__version__ for name in MUST_AGREE if name in sys.modules},
        token=who.token,
        client=who.client,
    )
    try:
        welcome: Welcome = answered(connection.request(Verb.HELLO, msgspec.msgpack.encode(hello)), Welcome)
    except (msgspec.MsgspecError, ProtocolError) as error:
        raise Incompatible(f"the daemon speaks another protocol ({error}); `jitserver restart` it") from error
    try:
        check_agreement(hello, welcome)
    except Incompatible:
        with contextlib.suppress(JitserverError):  # else the daemon would wait for our return
            connection.request(Verb.GOODBYE, msgspec.msgpack.encode(None))
        raise
    return welcome


def check_agreement(hello: Hello, welcome: Welcome) -> None:
    """Compares what the two sides of a handshake run.

    Raises:
        Incompatible: they differ in what must agree; the message names both sides.
    """
    ours = {"protocol": str(hello.protocol), "Python": _minor(hello.python), **hello.loaded}
    theirs = {"protocol": str(welcome.protocol), "Python": _minor(welcome.python), **welcome.packages}
    differ = [name for name, version in ours.items() if theirs.get(name, version) != version]
    if differ:
        lines = ", ".join(f"{name} is {ours[name]} here and {theirs[name]} there" for name in differ)
        raise Incompatible(f"this program and the daemon (pid {welcome.pid}) differ: {lines}; `jitserver restart` it")


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
