"""Starting a daemon in the background: a single one, however many clients start it at once."""

import contextlib
import fcntl
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import platformdirs

from jitclient.core.digests import digest
from jitclient.errors import DaemonError, DaemonUnavailable
from jitclient.wire.address import Address, open_lock, runtime_folder, usable_folder

START_SECONDS = 120.0
IDLE_EXIT_SECONDS = 3 * 3600
_POLL_SECONDS = 0.02
_LARGEST_LOG = 10 << 20
_CLIENT_ONLY = (
    "JITSERVER_START_LOCK",
    "LISTEN_FDNAMES",
    "LISTEN_FDS",
    "LISTEN_PID",
    "NOTIFY_SOCKET",  # the client's unit
    "PYTHONINSPECT",
    "PYTHONOPTIMIZE",
    "PYTHONWARNINGS",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
)
_INHERITED_LOCK = "JITSERVER_START_LOCK"
_started: set[int] = set()


def start(
    address: Address, idle_exit: float | None = IDLE_EXIT_SECONDS, first: Callable[[], None] | None = None
) -> tuple[socket.socket, int | None]:
    """Start a daemon at `address`, unless one answers there.

    `first` is called under the start lock, while clients wait for the new daemon; it may stop a running one.

    Returns:
        A connection to the daemon, and its process id if this call started it.

    Raises:
        DaemonUnavailable: it could not be started; the message ends with its last output.
    """
    try:
        address.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open_lock(_start_lock(address)) as lock:
            _locked(lock, fcntl.LOCK_EX)
            if first is not None:
                first()
            with contextlib.suppress(DaemonUnavailable):
                return address.connect(), None
            return _start(address, idle_exit)
    except DaemonError:
        raise
    except OSError as error:  # such as an unwritable folder for sockets or logs
        raise DaemonUnavailable(f"a daemon cannot be started: {error}") from error


def _start(address: Address, idle_exit: float | None) -> tuple[socket.socket, int]:
    log = log_path(address)
    if log.exists() and log.stat().st_size > _LARGEST_LOG:
        log.unlink()
    position = log.stat().st_size if log.exists() else 0
    for earlier in list(_started):
        _reap(earlier)  # or it stays a zombie
    pid = _spawn(address, log, idle_exit)
    _started.add(pid)
    return wait_for(address, lambda: _reap(pid), log, position), pid


def log_path(address: Address) -> Path:
    """The log file of a daemon in the background."""
    return log_folder() / f"{address.path.stem}-{digest(os.fsencode(address.path.parent), 4).hex()}.log"


def log_folder() -> Path:
    """The user's folder for logs of daemons without systemd; created if missing. That for sockets, if need be."""
    return usable_folder([lambda: Path(platformdirs.user_log_dir("jitserver", appauthor=False)), runtime_folder])


# ---- the start lock: one process starts a daemon, others wait and then connect to it


def awaited(address: Address) -> bool:
    """Wait while another process starts a daemon at `address`; return whether one did.

    Raises:
        DaemonUnavailable: it takes too long.
    """
    path = _start_lock(address)
    if not path.exists():
        return False
    with open_lock(path, "r") as lock:
        return _locked(lock, fcntl.LOCK_SH)


def keep_start(address: Address) -> None:
    """Take the start lock, unless a process has it, and keep it until `let_start`, also across exec: clients wait for
    this daemon meanwhile.

    Raises:
        DaemonUnavailable, OSError: there can be no lock.
    """
    if _INHERITED_LOCK in os.environ:
        return
    address.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open_lock(_start_lock(address)) as file, contextlib.suppress(DaemonUnavailable):  # another starts a daemon
        _locked(file, fcntl.LOCK_EX, _POLL_SECONDS / 2)  # not at once: clients that look have it for a moment
        lock = os.dup(file.fileno())
        os.set_inheritable(lock, True)
        os.environ[_INHERITED_LOCK] = str(lock)


def let_start() -> None:
    """Release the start lock that `keep_start` took, perhaps before an exec."""
    lock = os.environ.pop(_INHERITED_LOCK, "")
    if lock:
        os.close(int(lock))


def _start_lock(address: Address) -> Path:
    return address.path.with_suffix(".start")


def _locked(lock: IO[str], kind: int, seconds: float | None = None) -> bool:
    """Lock the file; return whether another process had it.

    Raises:
        DaemonUnavailable: another has it for so many seconds, by default those that a start may take.
    """
    seconds = START_SECONDS if seconds is None else seconds
    deadline = time.monotonic() + seconds
    waited = False
    while True:
        try:
            fcntl.flock(lock, kind | fcntl.LOCK_NB)
            return waited
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise DaemonUnavailable(
                    f"another process holds {lock.name} locked, but has started no daemon in {seconds:.0f} s"
                ) from None
        waited = True
        time.sleep(_POLL_SECONDS)


def command(address: Address) -> list[str]:
    """What runs a daemon at `address` in the foreground."""
    return [sys.executable, "-P", "-m", "jitserver", "serve", "--address", str(address)]


def _spawn(address: Address, log: Path, idle_exit: float | None) -> int:
    arguments = command(address)
    if idle_exit is not None:
        arguments += ["--idle-exit", str(idle_exit)]
    with open(log, "ab", opener=_unless_pipe) as output, open(os.devnull, "rb") as nothing:
        return os.posix_spawn(
            sys.executable,
            arguments,
            daemon_environment(),
            file_actions=[
                (os.POSIX_SPAWN_DUP2, nothing.fileno(), 0),
                (os.POSIX_SPAWN_DUP2, output.fileno(), 1),
                (os.POSIX_SPAWN_DUP2, output.fileno(), 2),
            ],
            setsid=True,  # it outlives the client's terminal
            setsigmask=(),  # a thread that blocks SIGTERM must not start a daemon that SIGTERM cannot stop
        )


def _unless_pipe(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK, 0o666)


def daemon_environment() -> dict[str, str]:
    """The client's environment, without variables that are meant for this run of the client only, and with as many
    devices on the CPU as the program has asked jax for.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _CLIENT_ONLY}
    devices = getattr(getattr(sys.modules.get("jax"), "config", None), "jax_num_cpu_devices", -1)
    if devices > 0:
        environment["JAX_NUM_CPU_DEVICES"] = str(devices)
    # The daemon never imports the user's modules, but it needs installed packages.
    kept = [entry for entry in environment.pop("PYTHONPATH", "").split(os.pathsep) if _holds_packages(entry)]
    if kept:
        environment["PYTHONPATH"] = os.pathsep.join(kept)
    return environment


def _holds_packages(entry: str) -> bool:
    return bool(entry) and (
        Path(entry).name in ("site-packages", "dist-packages") or any(Path(entry).glob("*.dist-info"))
    )


def wait_for(address: Address, ending: Callable[[], str], log: Path, position: int = 0) -> socket.socket:
    """A connection to a daemon that is coming up.

    Args:
        address: where it will answer.
        ending: says how it ended; empty while it runs.
        log: the file that it writes its log to.
        position: where in that file it began.

    Raises:
        DaemonUnavailable: it ended, or takes too long; the message ends with its log.
    """
    deadline = time.monotonic() + START_SECONDS
    while True:
        with contextlib.suppress(DaemonUnavailable):
            return address.connect()
        ended = ending()
        if ended:
            with contextlib.suppress(DaemonUnavailable):
                return address.connect()  # another daemon was quicker
            raise DaemonUnavailable(f"the daemon ended at its start ({ended}):{_tail(log, position)}")
        if time.monotonic() > deadline:
            raise DaemonUnavailable(f"no answer within {START_SECONDS:.0f} s; see {log}:{_tail(log, position)}")
        time.sleep(_POLL_SECONDS)


def _reap(pid: int) -> str:
    """Waits for a daemon of this process that has ended; returns how, or nothing while it runs."""
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:  # the program ignores SIGCHLD, or has reaped it
        _started.discard(pid)
        return "status unknown"
    if not ended:
        return ""
    _started.discard(pid)
    return f"status {os.waitstatus_to_exitcode(status)}"


def _tail(log: Path, position: int) -> str:
    """What a daemon wrote from a position on; only the line with its error, if that came last."""
    with open(log, "rb") as file:
        file.seek(position)
        text = file.read().decode(errors="replace")[-2000:].strip()
    last = text.splitlines()[-1] if text else ""
    return f" {last.removeprefix('Error: ')}" if last.startswith("Error: ") else f"\n{text}"
