"""Addresses of daemons: parsing, defaults, and the sockets and locks behind them."""

import contextlib
import errno
import os
import socket
import stat
import struct
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple, Self

from jitclient.core.digests import digest
from jitclient.core.directories import (
    MAX_SOCKET_BYTES,
    cache_root,
    environment_digest,
    private_directory,
    process_settings,
    runtime_directory,
    user_name,
)
from jitclient.core.file_lock import lock, open_lock, try_lock
from jitclient.core.polling import Polling
from jitclient.errors import DaemonSilent, DaemonUnavailable, SettingsError, WrongUser

if TYPE_CHECKING:
    from jitclient.wire.ssh import SshAddress


_DAEMONS = "daemons"
"""Directory in the cache with a note of each daemon, which the daemon locks while it runs."""
_UNUSABLE = (DaemonUnavailable, SettingsError)


class Address(NamedTuple):
    """Unix socket of a daemon, written `unix:PATH`."""

    path: Path

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse an address.

        Raises:
            SettingsError: the address is invalid, or of a kind that this version cannot serve.
        """
        scheme, _, path = text.partition(":")
        if scheme in ("ssh", "tcp"):
            raise SettingsError(f"address {text!r}: a daemon listens on Unix sockets only; expected unix:PATH")
        if scheme != "unix" or not path.startswith("/") or not Path(path).name:
            raise SettingsError(f"address {text!r}: expected unix:PATH with an absolute path, or ssh://host")
        if len(os.fsencode(path)) > MAX_SOCKET_BYTES:
            raise SettingsError(f"address {text!r}: the path of a socket can have at most {MAX_SOCKET_BYTES} bytes")
        return cls(Path(path))

    def __str__(self) -> str:
        return f"unix:{self.path}"

    @property
    def lock_path(self) -> Path:
        """File that the daemon locks while it runs."""
        return self.path.with_suffix(".lock")

    def is_held(self) -> bool:
        """Return whether a daemon holds the lock."""
        if not self.lock_path.exists():
            return False
        with open_lock(self.lock_path, "r") as file:
            return not try_lock(file)

    def connect(self, timeout: float = 5.0) -> socket.socket:
        """Connect a socket to the daemon.

        Raises:
            DaemonUnavailable: there is no daemon.
            WrongUser: the daemon, or the directory of its socket, belongs to another user.
            DaemonSilent: a daemon listens, but does not accept the connection.
        """
        try:
            sock = socket.socket(socket.AF_UNIX)
        except OSError as error:  # no file descriptors are left
            raise DaemonUnavailable(f"cannot connect to {self}: {error.strerror or error}") from error
        try:
            self._connect(sock, timeout)
        except DaemonSilent:
            sock.close()
            raise
        except OSError as error:
            sock.close()
            self.check_access(error)
            if isinstance(error, ConnectionRefusedError):
                self._remove_stale_socket()
                raise DaemonUnavailable(f"no daemon answers at {self}") from error
            raise DaemonUnavailable(f"no daemon answers at {self}: {error.strerror or error}") from error
        owner = self._owner(sock)
        if owner != os.getuid():
            sock.close()
            raise WrongUser.at(self, owner)
        return sock

    def check_access(self, error: OSError) -> None:
        """Check whether the failure of an access to the socket is that the socket belongs to another user.

        Raises:
            WrongUser: another user's file or directory denied the access.
        """
        if not isinstance(error, PermissionError):
            return
        owner = os.getuid()
        for path in (self.path, *self.path.parents):
            with contextlib.suppress(OSError):
                owner = path.stat().st_uid
                break
        if owner != os.getuid():
            raise WrongUser.at(self, owner) from error

    def _remove_stale_socket(self) -> None:
        """Remove this user's socket if nothing listens there, as after a crash, and no daemon is starting."""
        with contextlib.suppress(OSError, DaemonUnavailable):
            found = self.path.lstat()
            if stat.S_ISSOCK(found.st_mode) and found.st_uid == os.getuid() and self.lock_path.exists():
                # The lock is released when the file is closed. Until then, no daemon can begin to listen.
                with open_lock(self.lock_path, "r") as lock:
                    if try_lock(lock) and os.path.samestat(found, self.path.lstat()):
                        self.path.unlink()

    def _owner(self, sock: socket.socket) -> int:
        """Return the user to whom the listening process belongs."""
        listening = peer(sock).uid
        # The system's systemd listens as root, and gives the file of the socket to the daemon's user.
        if listening == 0:
            with contextlib.suppress(OSError):
                return self.path.stat().st_uid
        return listening

    def _connect(self, sock: socket.socket, timeout: float) -> None:
        sock.settimeout(timeout)
        polling = Polling(timeout)
        while True:
            try:
                return sock.connect(os.fspath(self.path))
            except BlockingIOError as error:  # the backlog is full
                if not polling.pause():
                    raise DaemonSilent(f"the daemon at {self} has accepted no connection for {timeout:g} s") from error

    def listen(self) -> socket.socket:
        """Create a listening socket. Its file appears only when clients can connect.

        The caller holds the lock of the address, so an existing socket was left behind by a dead daemon.

        Raises:
            OSError: the socket cannot be created, for instance because another kind of file has its path.
        """
        if os.path.lexists(self.path) and not stat.S_ISSOCK(self.path.lstat().st_mode):
            raise FileExistsError(errno.EEXIST, "The path exists and is not a socket", os.fspath(self.path))
        fresh = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        sock = socket.socket(socket.AF_UNIX)
        try:
            fresh.unlink(missing_ok=True)
            sock.bind(os.fspath(fresh))
            fresh.chmod(0o600)
            sock.listen(socket.SOMAXCONN)
            fresh.rename(self.path)
        except BaseException:
            fresh.unlink(missing_ok=True)
            sock.close()
            raise
        return sock


class Peer(NamedTuple):
    """Process at the other end of a Unix socket."""

    pid: int
    uid: int


def peer(sock: socket.socket) -> Peer:
    """Return the process at the other end, according to the kernel.

    Outside Linux, return process id 0 and assume that the process belongs to the same user.
    """
    if sys.platform != "linux":
        return Peer(0, os.getuid())
    pid, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return Peer(pid, uid)


class RunningDaemon(NamedTuple):
    """A daemon of this user that runs on this machine.

    Attributes:
        address: its address.
        pid: its process id.
        environment: its Python environment.
        settings: the variables that distinguish it from other daemons of this environment, as a shell reads them.
    """

    address: Address
    pid: int
    environment: str
    settings: str


def note_running(address: Address) -> IO[str]:
    """Note that this process is the daemon at `address`, as long as the returned file is open.

    The note is in the cache, which all shells of the user have in common; their runtime directories may differ.

    Raises:
        OSError, DaemonUnavailable, SettingsError: the note cannot be written.
    """
    import shlex  # clients need not import it

    directory = private_directory(private_directory(cache_root()) / _DAEMONS)
    name = digest(os.fsencode(address.path), 6).hex()
    fresh = directory / f".{name}.{os.getpid()}"
    fresh.unlink(missing_ok=True)
    file = open_lock(fresh)
    lock(file)
    made = " ".join(f"{name}={shlex.quote(value)}" for name, value in process_settings().items())
    file.write("\n".join([str(address), str(os.getpid()), sys.prefix, made]))
    file.flush()
    # Others see the note only after it is locked. The daemon before may not have exited yet.
    fresh.rename(directory / name)
    return file


def running_daemons() -> list[RunningDaemon]:
    """Return the daemons of this user that run on this machine, whatever their settings and environments are."""
    found = []
    with contextlib.suppress(OSError, SettingsError):
        directory = cache_root() / _DAEMONS
        # Another user's notes would name that user's sockets.
        is_own = directory.stat().st_uid == os.getuid()
        for path in sorted(directory.glob("[0-9a-f]*")) if is_own else ():
            # A note may be damaged, or of another machine with the same home directory.
            with (
                contextlib.suppress(OSError, ValueError, DaemonUnavailable, SettingsError),
                open_lock(path, "r") as file,
            ):
                if not try_lock(file, shared=True):
                    address, pid, environment, settings = file.read().split("\n")
                    daemon = RunningDaemon(Address.parse(address), int(pid), environment, settings)
                    found += [daemon] if daemon.address.path.exists() else []
    return found


def user_address() -> Address:
    """Return the address of the user's own daemon, started by hand, by a client or by `systemd --user`.

    A daemon that runs already is found from any shell, whether XDG_RUNTIME_DIR is set there or not.
    """
    own = Address.parse(f"unix:{runtime_directory() / f'{environment_digest()}.sock'}")
    if own.is_held():
        return own
    return next((each.address for each in running_daemons() if each.address.path.name == own.path.name), own)


def system_address() -> Address | None:
    """Return the address of the daemon that the system's systemd runs for this user; None if the user has no name."""
    user = user_name()
    return None if user is None else Address.parse(f"unix:/run/jitserver/{environment_digest()}/{user}.sock")


def default_addresses(address: str | None) -> list[Address]:
    """Return the addresses to try, in order: only the configured one, or else the user's and then the system's.

    Raises:
        SettingsError: the configured address is invalid.
        DaemonUnavailable: no directory for a socket can be created.
    """
    if address is not None:
        return [Address.parse(address)]
    try:
        return [each for each in (user_address(), system_address()) if each is not None]
    except OSError as error:
        raise DaemonUnavailable(f"cannot create a directory for the daemon's socket: {error}") from error


def remote(address: str | None) -> "SshAddress | None":
    """Return the address as that of a daemon on another machine; None if it is not one.

    Raises:
        SettingsError: the address is invalid.
    """
    if address is None or not address.startswith("ssh:"):
        return None
    from jitclient.wire.ssh import SshAddress  # loads subprocess, rarely needed

    return SshAddress.parse(address)
