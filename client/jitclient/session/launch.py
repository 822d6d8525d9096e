"""Start of a daemon in the background: only one starts, however many clients try at the same time."""

import contextlib
import fcntl
import os
import socket
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO

import platformdirs

from jitclient.core.digests import digest
from jitclient.core.directories import runtime_directory, usable_directory
from jitclient.core.file_lock import open_lock, try_lock
from jitclient.core.polling import Polling
from jitclient.errors import DaemonError, DaemonUnavailable
from jitclient.wire.address import Address

START_SECONDS = 120.0
IDLE_EXIT_SECONDS = 3 * 3600
# A client that only looks for the start lock holds it for less.
_LOOK_SECONDS = 0.01
_CLIENT_ONLY = (
    "JITSERVER_START_LOCK",
    "LISTEN_FDNAMES",
    "LISTEN_FDS",
    "LISTEN_PID",
    "NOTIFY_SOCKET",  # of the client's systemd unit
    "PYTHONINSPECT",
    "PYTHONOPTIMIZE",
    "PYTHONWARNINGS",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
)
_INHERITED_LOCK = "JITSERVER_START_LOCK"
PACKAGES_VARIABLE = "JITSERVER_SERVE_PACKAGES"
"""Environment variable of the option `--packages` of `jitserver serve`."""
_started: set[int] = set()


def start(
    address: Address, idle_exit: float | None = IDLE_EXIT_SECONDS, first: Callable[[], None] | None = None
) -> tuple[socket.socket, int | None]:
    """Start a daemon at `address`, unless one answers there.

    `first` is called under the start lock, while clients wait for the new daemon; it may stop a running one.

    Returns:
        A connection to the daemon, and its process id if this call started it.

    Raises:
        DaemonUnavailable: the daemon could not be started; the message includes its last output.
        WrongUser: the address belongs to another user.
    """
    try:
        address.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open_lock(_start_lock(address)) as lock:
            _wait_for_lock(lock)
            if first is not None:
                first()
            with contextlib.suppress(DaemonUnavailable):
                return address.connect(), None
            return _start(address, idle_exit)
    except DaemonError:
        raise
    except OSError as error:
        address.check_access(error)
        # For instance, a directory for sockets or logs is not writable.
        raise DaemonUnavailable(f"cannot start a daemon: {error}") from error


def begin_start(address: Address, packages: Iterable[str] = ()) -> int | None:
    """Start a daemon at `address` without waiting for it. Clients wait for it, as for any daemon that is starting.

    Args:
        address: address at which no daemon listens.
        packages: packages that the daemon imports once it serves.

    Returns:
        Its process id; None if another process is starting a daemon.

    Raises:
        DaemonUnavailable, OSError: the daemon could not be started.
    """
    address.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open_lock(_start_lock(address)) as lock:
        if not try_lock(lock) or address.path.exists():
            return None
        # Above the standard streams, which the daemon replaces. The daemon holds the lock until it serves.
        inherited = fcntl.fcntl(lock, fcntl.F_DUPFD_CLOEXEC, 10)
        try:
            return _launched(address, log_path(address), IDLE_EXIT_SECONDS, packages, inherited)
        finally:
            os.close(inherited)


def _start(address: Address, idle_exit: float | None) -> tuple[socket.socket, int]:
    log = log_path(address)
    position = log.stat().st_size if log.exists() else 0
    pid = _launched(address, log, idle_exit)
    return wait_for(address, lambda: _reap(pid), log, position), pid


def _launched(
    address: Address, log: Path, idle_exit: float | None, packages: Iterable[str] = (), lock: int | None = None
) -> int:
    for earlier in list(_started):
        _reap(earlier)  # otherwise it stays a zombie
    pid = _spawn(address, log, idle_exit, packages, lock)
    _started.add(pid)
    return pid


def log_path(address: Address) -> Path:
    """Return the path of the log file of a background daemon."""
    return log_directory() / f"{address.path.stem}-{digest(os.fsencode(address.path.parent), 4).hex()}.log"


def log_directory() -> Path:
    """Return the user's directory for logs of daemons without systemd; create it if missing.

    If that directory is not usable, return the directory for sockets.
    """
    return usable_directory([lambda: Path(platformdirs.user_log_dir("jitserver", appauthor=False)), runtime_directory])


# ---- the start lock: one process starts a daemon, others wait and then connect to it


def wait_for_other_start(address: Address) -> bool:
    """Wait while another process starts a daemon at `address`; return whether one did.

    Raises:
        DaemonUnavailable: the start takes too long.
    """
    path = _start_lock(address)
    if not path.exists():
        return False
    with open_lock(path, "r") as lock:
        return _wait_for_lock(lock, shared=True)


def hold_start_lock(address: Address) -> None:
    """Take the start lock, unless another process has it, so that clients wait for this daemon.

    The lock is kept until `release_start_lock`, also across exec.

    Raises:
        DaemonUnavailable, OSError: the lock file cannot be opened.
    """
    if _INHERITED_LOCK in os.environ:
        return
    address.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The lock stays with another process that is starting a daemon.
    with open_lock(_start_lock(address)) as file, contextlib.suppress(DaemonUnavailable):
        _wait_for_lock(file, seconds=_LOOK_SECONDS)
        lock = os.dup(file.fileno())
        os.set_inheritable(lock, True)
        os.environ[_INHERITED_LOCK] = str(lock)


def release_start_lock() -> None:
    """Release the start lock that `hold_start_lock` took, perhaps before an exec."""
    lock = os.environ.pop(_INHERITED_LOCK, "")
    if lock:
        os.close(int(lock))


def _start_lock(address: Address) -> Path:
    return address.path.with_suffix(".start")


def _wait_for_lock(lock: IO[str], shared: bool = False, seconds: float | None = None) -> bool:
    """Lock the file; return whether another process held the lock.

    Raises:
        DaemonUnavailable: another process held it for `seconds` seconds, by default as long as a start may take.
    """
    seconds = START_SECONDS if seconds is None else seconds
    polling, waited = Polling(seconds), False
    while not try_lock(lock, shared):
        waited = True
        if not polling.pause():
            raise DaemonUnavailable(
                f"another process holds the lock {lock.name}, but has started no daemon for {seconds:.0f} s"
            )
    return waited


def program(*words: str) -> list[str]:
    """Return the command line that runs a command of `jitserver` with this Python."""
    return [sys.executable, "-P", "-m", "jitserver", *words]


def command(address: Address) -> list[str]:
    """Return the command line that runs a daemon at `address` in the foreground."""
    return program("serve", "--address", str(address))


def _spawn(
    address: Address, log: Path, idle_exit: float | None, packages: Iterable[str], start_lock: int | None
) -> int:
    arguments, environment = command(address), daemon_environment()
    if idle_exit is not None:
        arguments += ["--idle-exit", str(idle_exit)]
    if named := " ".join(sorted(packages)):
        environment.setdefault(PACKAGES_VARIABLE, named)
    if start_lock is not None:
        environment[_INHERITED_LOCK] = str(start_lock)
    with open(log, "ab", opener=_unless_pipe) as output, open(os.devnull, "rb") as nothing:
        return os.posix_spawn(
            sys.executable,
            arguments,
            environment,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, nothing.fileno(), 0),
                (os.POSIX_SPAWN_DUP2, output.fileno(), 1),
                (os.POSIX_SPAWN_DUP2, output.fileno(), 2),
                # Onto itself, so that exec does not close it.
                *([] if start_lock is None else [(os.POSIX_SPAWN_DUP2, start_lock, start_lock)]),
            ],
            # A session of its own lets the daemon outlive the client's terminal.
            setsid=True,
            # Otherwise, a thread that blocks SIGTERM would start a daemon that SIGTERM cannot stop.
            setsigmask=(),
        )


def _unless_pipe(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK, 0o666)


def daemon_environment() -> dict[str, str]:
    """Return the client's environment variables, adapted for a daemon.

    Variables for this run of the client only are left out. The number of CPU devices is that of the program's jax.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _CLIENT_ONLY}
    devices = getattr(getattr(sys.modules.get("jax"), "config", None), "jax_num_cpu_devices", -1)
    if devices > 0:
        environment["JAX_NUM_CPU_DEVICES"] = str(devices)
    # The daemon never imports the user's modules, but needs installed packages.
    kept = [entry for entry in environment.pop("PYTHONPATH", "").split(os.pathsep) if _holds_packages(entry)]
    if kept:
        environment["PYTHONPATH"] = os.pathsep.join(kept)
    return environment


def _holds_packages(entry: str) -> bool:
    """Return whether a directory holds installed packages, or jitserver itself."""
    path = Path(entry)
    return bool(entry) and (
        path.name in ("site-packages", "dist-packages")
        or any((path / name / "__init__.py").exists() for name in ("jitserver", "jitclient"))
        or any(path.glob("*.dist-info"))
    )


def wait_for(address: Address, exit_status: Callable[[], str], log: Path, position: int = 0) -> socket.socket:
    """Connect to a daemon that is starting; wait until it answers.

    Args:
        address: address at which the daemon will answer.
        exit_status: returns how the daemon exited; empty while it runs.
        log: the daemon's log file.
        position: offset in that file at which the daemon's log begins.

    Raises:
        DaemonUnavailable: the daemon exited, or takes too long; the message ends with its log.
    """
    polling = Polling(START_SECONDS)
    while True:
        with contextlib.suppress(DaemonUnavailable):
            return address.connect()
        exited = exit_status()
        if exited:
            with contextlib.suppress(DaemonUnavailable):
                return address.connect()  # another daemon was faster
            raise DaemonUnavailable(f"the daemon exited during its start ({exited}):{_tail(log, position)}")
        if not polling.pause():
            raise DaemonUnavailable(f"no answer within {START_SECONDS:.0f} s; see {log}:{_tail(log, position)}")


def _reap(pid: int) -> str:
    """Reap a daemon that this process started and that has exited; return its status, or "" while it runs."""
    try:
        exited, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        # The program ignores SIGCHLD, or has reaped the daemon itself.
        _started.discard(pid)
        return "status unknown"
    if not exited:
        return ""
    _started.discard(pid)
    return f"status {os.waitstatus_to_exitcode(status)}"


def _tail(log: Path, position: int) -> str:
    """Return a daemon's log from a position on, or only its last line if that is an error."""
    with open(log, "rb") as file:
        file.seek(position)
        text = file.read().decode(errors="replace")[-2000:].strip()
    last = text.splitlines()[-1] if text else ""
    return f" {last.removeprefix('Error: ')}" if last.startswith("Error: ") else f"\n{text}"
