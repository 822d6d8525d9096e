"""Connection to a daemon: finding or starting it, the handshake, and the comparison of versions."""

import contextlib
import copy
import dataclasses
import os
import platform
import socket
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from jitclient.core.clock import monotonic
from jitclient.core.directories import devices_file, environment_directory, private_directory
from jitclient.core.notices import print_notice
from jitclient.core.polling import Polling
from jitclient.core.settings import Settings
from jitclient.errors import (
    DaemonDraining,
    DaemonHangs,
    DaemonLost,
    DaemonSilent,
    DaemonUnavailable,
    HostUnreachable,
    Incompatible,
    JitserverError,
    ProtocolError,
    SettingsError,
)
from jitclient.session import process_settings, versions
from jitclient.session.exceptions import answered
from jitclient.version import __version__
from jitclient.wire.address import Address, default_addresses, remote
from jitclient.wire.encoding import encoded
from jitclient.wire.messages import FIRST_FRAME_BYTES, PROTOCOL, Hello, Verb, Welcome

if TYPE_CHECKING:
    from jitclient.wire.connection import ClientConnection
    from jitclient.wire.ssh import SshAddress

_Answer = TypeVar("_Answer")
_EXIT_SECONDS = 2.0
# Time for a link that broke to come back.
_RESUME_SECONDS = 60.0
_RECONNECT_SECONDS = 1.0
# After a failure, wait this many times its duration: an unreachable daemon costs callers a tenth of their time.
_RETRY_SHARE = 9
# How long to wait for a daemon that hung before.
_SHORT_SECONDS = 1.0
# The same for a daemon on another machine.
_SHORT_SECONDS_REMOTE = 5.0
_CONNECT_SECONDS = 5.0
_NEEDS_LINUX = "the daemon needs Linux: name another machine (JITSERVER_ADDRESS=ssh://user@host/path/to/environment)"


@dataclasses.dataclass(frozen=True)
class Reached:
    """Daemon that completed the handshake."""

    connection: "ClientConnection"
    address: "Address | SshAddress"
    welcome: Welcome


@dataclasses.dataclass(frozen=True)
class ClientId:
    """Identity of a client: the token of the session to resume or join, and an id of the process that numbers Runs."""

    token: bytes = b""
    client: bytes = dataclasses.field(default_factory=lambda: os.urandom(8))


class Finder:
    """Search for a session's daemon, with a pause after each failure."""

    def __init__(self, chosen: Settings) -> None:
        self._settings = chosen
        self._last_error: DaemonUnavailable | Incompatible | None = None
        self._retry_at = 0.0  # time of the next attempt
        self._patience = chosen.timeout

    def reach(self, client_id: ClientId) -> Reached:
        """Reach a daemon as the function `reach` does, or raise the last error again during the pause after a failure.

        If a session is to be resumed and the link is down, wait for the link for a while.

        Raises:
            DaemonHangs: instead of DaemonSilent.
        """
        start = monotonic()
        if self._last_error is not None and start < self._retry_at:
            raise copy.copy(self._last_error)  # without its traceback
        may_resume = bool(client_id.token) and self._last_error is None
        polling = None
        while True:
            start = monotonic()
            try:
                reached = reach(self._settings, client_id, self._patience)
            except DaemonSilent as error:
                raise self.mark_hanging(error) from error
            except (DaemonUnavailable, Incompatible) as error:
                now = monotonic()
                if isinstance(error, HostUnreachable) and may_resume:
                    if polling is None:
                        print_notice(f"{error.args[0].splitlines()[0]}; retrying for {_RESUME_SECONDS:.0f} s")
                        polling = Polling(_RESUME_SECONDS, _RECONNECT_SECONDS)
                    if polling.pause():
                        continue
                self._last_error, self._retry_at = error, now + _RETRY_SHARE * (now - start)
                raise
            self._last_error, self._patience = None, self._settings.timeout
            return reached

    def mark_hanging(self, error: DaemonSilent) -> DaemonHangs:
        """Note that the daemon hangs, so that it is asked again only now and then, with little patience."""
        short = _SHORT_SECONDS if remote(self._settings.address) is None else _SHORT_SECONDS_REMOTE
        self._patience = min(self._settings.timeout, short)
        hangs = self._last_error = DaemonHangs(str(error))
        self._retry_at = monotonic() + _RETRY_SHARE * self._patience
        return hangs


def reach(chosen: Settings, client_id: "ClientId | None" = None, patience: float | None = None) -> Reached:
    """Connect to a daemon, starting one if none answers, and open a session, or resume that of `client_id`.

    Raises:
        DaemonUnavailable: no daemon answers, and none could be started.
        DaemonSilent: the daemon runs, but did not answer for `patience` seconds (by default the setting `timeout`).
        Incompatible: the daemon has other versions of Python, jax or the protocol.
    """
    try:
        return _retry_while_stopping(lambda: _reach(chosen, client_id or ClientId(), patience or chosen.timeout))
    except JitserverError:
        raise
    except (OSError, MemoryError) as error:
        # This process lacks file descriptors or memory.
        raise DaemonUnavailable(f"no daemon can be reached: {str(error) or 'no memory is left'}") from error


def _retry_while_stopping(attempt: Callable[[], _Answer]) -> _Answer:
    """Retry while a daemon is stopping: its socket disappears a moment later."""
    polling = None
    while True:
        try:
            return attempt()
        except DaemonSilent:
            raise
        except (DaemonLost, DaemonDraining) as error:
            # The time counts from the first failure, not from the beginning, because an attempt may start a daemon.
            polling = polling or Polling(_EXIT_SECONDS)
            if not polling.pause():
                raise DaemonUnavailable(f"the daemon is stopping: {error}") from error


def _reach(chosen: Settings, client_id: ClientId, patience: float) -> Reached:
    sock, address, started = dial(chosen, patience)
    connection = _over(sock, chosen.timeout)
    try:
        welcome = _greet(connection, client_id, remote(chosen.address), patience)
    except BaseException:
        connection.close()
        raise
    if started is not None:
        print_notice(f"started a daemon (pid {started}, {address})")
    _remember_devices(chosen, welcome)
    return Reached(connection, address, welcome)


def _remember_devices(chosen: Settings, welcome: Welcome) -> None:
    """Remember the number of the daemon's devices for the next process, unless they are the CPU of this machine."""
    if (welcome.platform == "cpu" and remote(chosen.address) is None) or not welcome.devices:
        return
    # On a full or read-only disk, the next process does not know it.
    with contextlib.suppress(OSError, SettingsError):
        environment_directory()
        file, number = devices_file(chosen), str(welcome.devices)
        if not file.exists() or file.read_text() != number:
            private_directory(file.parent)
            file.write_text(number)


def dial(chosen: Settings, patience: float) -> "tuple[socket.socket, Address | SshAddress, int | None]":
    """Connect to a daemon, starting one if none answers and the settings allow it.

    Returns:
        The connection, the daemon's address, and its process id if this call started it.

    Raises:
        DaemonUnavailable: no daemon answers, and none could be started.
        DaemonSilent: the daemon runs, but accepted no connection for `patience` seconds.
    """
    remote_address = remote(chosen.address)
    if remote_address is not None:
        over_ssh, started = remote_address.connect(chosen.autostart)
        return over_ssh, remote_address, started
    with contextlib.suppress(DaemonUnavailable):
        return *_dialled(chosen, patience), None
    launch = _launch()
    address = default_addresses(chosen.address)[0]
    if sys.platform != "linux":
        raise DaemonUnavailable(_NEEDS_LINUX)
    if chosen.autostart:
        sock, started = launch.start(address)
        return sock, address, started
    launch.wait_for_other_start(address)
    # Without a wait, too: a start may have finished after the first attempt.
    return *_dialled(chosen, patience), None


def start_ahead(chosen: Settings, packages: Iterable[str]) -> None:
    """Start the user's daemon without waiting for it, if a later call of `reach` would start it.

    Args:
        chosen: the settings of the client.
        packages: packages that the daemon imports once it serves.

    Raises:
        DaemonUnavailable, OSError, SettingsError: the daemon could not be started.
    """
    if sys.platform != "linux" or not chosen.autostart or remote(chosen.address) is not None:
        return
    addresses = default_addresses(chosen.address)
    # A socket that no daemon listens at is left to the first call: finding out here would cost each program time.
    if any(address.path.exists() for address in addresses):
        return
    started = _launch().begin_start(addresses[0], packages)
    if started is not None:
        print_notice(f"started a daemon (pid {started}, {addresses[0]})")


def _launch() -> Any:
    """Return the module that starts daemons, which is imported only where no daemon answers.

    Raises:
        DaemonUnavailable: It cannot be imported any more: the package was removed or replaced since this process began.
    """
    try:
        from jitclient.session import launch
    except ImportError as error:
        raise DaemonUnavailable(
            f"no daemon answers, and none can be started: jitserver was removed ({error})"
        ) from None
    return launch


def ask(chosen: Settings, verb: Verb, message: Any, answer: Any) -> Any:
    """Ask the running daemon, with retries; start none.

    Raises:
        DaemonUnavailable: no daemon answers.
        Incompatible: the daemon is of another version.
    """
    return _retry_while_stopping(lambda: ask_once(chosen, verb, message, answer))


def ask_once(chosen: Settings, verb: Verb, message: Any, answer: Any) -> Any:
    """Ask the running daemon over a connection without a session, without retries; start none.

    A large message needs a session, which lasts for this request only.

    Raises:
        DaemonLost: the daemon exited before it answered.
        DaemonUnavailable: no daemon answers.
        Incompatible: the daemon is of another version.
    """
    connection = connect_to_running(chosen)
    try:
        payload = encoded(message)
        is_large = len(payload) > FIRST_FRAME_BYTES // 2
        # The daemon accepts such messages in sessions only.
        if is_large:
            _greet(connection, ClientId(), remote(chosen.address), chosen.timeout)
        reply = connection.request(verb, payload)
        if is_large:
            connection.request(Verb.GOODBYE, msgspec.msgpack.encode(None))
        return answered(reply, answer)
    except (msgspec.MsgspecError, ProtocolError) as error:
        raise Incompatible.with_daemon(
            f"the daemon has a different version ({error}). Run `jitserver restart`."
        ) from error
    finally:
        connection.close()


def connect_to_running(chosen: Settings) -> "ClientConnection":
    """Connect to the running daemon, without a session; start none.

    Raises:
        DaemonUnavailable: no daemon answers.
    """
    return _over(_dialled(chosen, chosen.timeout)[0], chosen.timeout)


def _dialled(chosen: Settings, patience: float) -> "tuple[socket.socket, Address | SshAddress]":
    """Connect to a running daemon; return the socket and the address."""
    remote_address = remote(chosen.address)
    if remote_address is not None:
        return remote_address.connect()[0], remote_address
    addresses = default_addresses(chosen.address)
    for address in addresses:
        with contextlib.suppress(DaemonUnavailable):
            return address.connect(min(patience, _CONNECT_SECONDS)), address
    raise DaemonUnavailable(f"no daemon answers at {addresses[0]}. Run `jitserver start` to start one.")


def _over(sock: socket.socket, patience: float) -> "ClientConnection":
    # Imported late: loads rpyc, which is not needed if no daemon answers.
    from jitclient.wire.channel import WireChannel
    from jitclient.wire.connection import ClientConnection
    from jitclient.wire.stream import WireStream

    return ClientConnection(WireChannel(WireStream(sock)), patience)


def _greet(
    connection: "ClientConnection", client_id: ClientId, remote_address: "SshAddress | None", patience: float
) -> Welcome:
    hello = Hello(
        protocol=PROTOCOL,
        version=__version__,
        python=platform.python_version(),
        loaded={name: sys.modules[name].__version__ for name in versions.MUST_AGREE if name in sys.modules},
        token=client_id.token,
        client=client_id.client,
        program="" if remote_address is None else _this_program(),
    )
    try:
        welcome: Welcome = answered(connection.request(Verb.HELLO, encoded(hello), patience), Welcome)
    except (msgspec.MsgspecError, ProtocolError) as error:
        raise Incompatible.with_daemon(
            f"the daemon has a different protocol ({error}). Run `jitserver restart`."
        ) from error
    try:
        versions.check(hello, welcome, remote_address)
    except Incompatible:
        # Otherwise the daemon would keep the session for this client to resume.
        with contextlib.suppress(JitserverError):
            connection.request(Verb.GOODBYE, msgspec.msgpack.encode(None))
        raise
    # A daemon on another machine has the devices and the environment of that machine.
    if remote_address is None:
        process_settings.notify_once(welcome)
    return welcome


def _this_program() -> str:
    """Return a text that identifies this process to people on the daemon's machine."""
    # The interpreter without its directory, so that a short column shows more than a path.
    words = [os.path.basename(word) for word in sys.orig_argv[:1]] + sys.orig_argv[1:]
    return f"{' '.join(' '.join(words).split()):.200} (pid {os.getpid()} on {socket.gethostname()})"
