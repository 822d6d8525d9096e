"""Addresses of daemons: parsing, defaults, and the sockets, locks and directories behind them."""

import contextlib
import errno
import os
import pwd
import socket
import stat
import struct
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from jitclient.core.digests import digest
from jitclient.core.file_lock import open_lock, try_lock
from jitclient.core.polling import Polling
from jitclient.errors import DaemonSilent, DaemonUnavailable, SettingsError

if TYPE_CHECKING:
    from jitclient.wire.ssh import SshAddress

PROCESS_SETTINGS = (
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "JAX_NUM_CPU_DEVICES",
    "JAX_PLATFORMS",
    "JAX_PLATFORM_NAME",
    "LIBTPU_INIT_ARGS",
    "ROCR_VISIBLE_DEVICES",
    "TPU_VISIBLE_DEVICES",
    "XLA_FLAGS",
    "XLA_PYTHON_CLIENT_ALLOCATOR",
    "XLA_PYTHON_CLIENT_MEM_FRACTION",
    "XLA_PYTHON_CLIENT_PREALLOCATE",
)
"""Environment variables that apply to a whole process: each combination of their values has its own daemon."""

DAEMON_DEFAULTS = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
"""Variables that a daemon sets unless the user did. These values select the same daemon as no value."""

_SUN_PATH = 108 if sys.platform == "linux" else 104
# Excludes the terminating zero byte, and the dot and process id that `Address.listen` adds to the name.
_MAX_PATH_BYTES = _SUN_PATH - len("\0..4194304")
_MAX_DIRECTORY_BYTES = _MAX_PATH_BYTES - len("/0123456789ab.sock")


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
        if len(os.fsencode(path)) > _MAX_PATH_BYTES:
            raise SettingsError(f"address {text!r}: the path of a socket can have at most {_MAX_PATH_BYTES} bytes")
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
            DaemonUnavailable: there is no daemon, or it belongs to another user.
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
            raise DaemonUnavailable(f"no daemon answers at {self}: {error.strerror or error}") from error
        owner = peer(sock).uid
        if owner not in (os.getuid(), 0):
            sock.close()
            raise DaemonUnavailable(f"the daemon at {self} belongs to another user (uid {owner})")
        return sock

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


def environment_digest(environment: Mapping[str, str] = os.environ, prefix: str = sys.prefix) -> str:
    """Return a digest of this Python environment and of the PROCESS_SETTINGS, which together select a daemon."""
    given = {name: environment.get(name) for name in PROCESS_SETTINGS}
    made = [(name, value) for name, value in given.items() if value and value != DAEMON_DEFAULTS.get(name)]
    return digest(repr((os.path.realpath(prefix), made)).encode(), 6).hex()


def user_address() -> Address:
    """Return the address of the user's own daemon, started by hand, by a client or by `systemd --user`."""
    return Address.parse(f"unix:{runtime_directory() / f'{environment_digest()}.sock'}")


def system_address() -> Address | None:
    """Return the address of the daemon that the system's systemd runs for this user; None if the user has no name."""
    user = user_name()
    return None if user is None else Address.parse(f"unix:/run/jitserver/{environment_digest()}/{user}.sock")


def user_name() -> str | None:
    """Return the user's name; None in a container that does not know the user id."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return None


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


def runtime_directory() -> Path:
    """Return the user's directory for sockets and locks; create it if missing.

    Raises:
        OSError: no directory can be created that only this user can enter.
    """
    # Not platformdirs: without XDG_RUNTIME_DIR, it warns and uses a directory that another user may own.
    given = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    candidates = [_temporary_directory, lambda: Path("~/.cache/jitserver/run").expanduser()]
    # `su` and `sudo` may leave another user's directory in the variable.
    if os.path.isdir(given) and os.stat(given).st_uid == os.getuid():
        candidates.insert(0, lambda: Path(given) / "jitserver")
    return usable_directory(candidates, _MAX_DIRECTORY_BYTES)


def _temporary_directory() -> Path:
    import tempfile  # slow to import, rarely needed

    return Path(tempfile.gettempdir()) / f"jitserver-{os.getuid()}"


def usable_directory(candidates: Iterable[Callable[[], Path]], max_bytes: int = 4096) -> Path:
    """Return the first usable directory, created if missing; warn if it is not the first candidate.

    A directory is usable if only this user can enter it, it is writable, and its path has at most `max_bytes` bytes.

    Raises:
        OSError: no candidate is usable.
    """
    problems: list[str] = []
    for candidate in candidates:
        try:
            directory = candidate()
            if not directory.is_absolute():
                raise OSError(f"{directory} is not an absolute path")
            if len(os.fsencode(directory)) > max_bytes:
                raise OSError(f"the path {directory} is too long for a socket")
            found = private_directory(directory)
            if not os.access(found, os.W_OK):
                raise OSError(f"{directory} is not writable")
        except (OSError, RuntimeError, SettingsError) as error:
            # RuntimeError: this user has no home directory.
            problems.append(str(error))
        else:
            if problems:
                _notice(f"jitserver uses the directory {found}, because {problems[0]}")
            return found
    raise OSError("; ".join(problems))


def _notice(text: str) -> None:
    """Warn; print the text if the program turns warnings into errors, as `jitclient.core.notices` does."""
    try:
        warnings.warn(text, RuntimeWarning, stacklevel=3)
    except Warning:
        with contextlib.suppress(Exception):  # stderr may be closed
            print(f"jitserver: {text}", file=sys.stderr, flush=True)


def private_directory(path: Path) -> Path:
    """Create a directory that only this user can enter.

    Raises:
        SettingsError: the path belongs to another user, or is not a directory.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise SettingsError(f"{path} is not a directory owned by this user (uid {os.getuid()})")
    if stat.S_IMODE(found.st_mode) & 0o077:
        path.chmod(0o700)
    return path
