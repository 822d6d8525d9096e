"""The helpers of this user that run now, and the limits on their number and memory."""

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from jitclient.core.directories import runtime_directory
from jitclient.core.polling import Polling
from jitclient.wire.address import Address

MAX_HELPERS = 2
_MIN_AVAILABLE_BYTES = 1 << 30
_MEMORY = "/proc/meminfo"
_IDLE_SECONDS = 3 * 3600
_IDLE_SECONDS_ALONE = 600


class RunningHelper(NamedTuple):
    """A helper that runs now.

    Attributes:
        pid: its process id.
        daemon: process id of the daemon with which it ends; 0 if it has found none.
        memory_bytes: resident memory, of which its runs share most.
        age_s: seconds since it was started.
        idle_s: seconds since it began a run, or was started.
    """

    pid: int
    daemon: int
    memory_bytes: int
    age_s: float
    idle_s: float


def running() -> list[RunningHelper]:
    """Return the helpers of this user, the one that was used last first."""
    return sorted(_running(), key=lambda helper: helper.idle_s)


def note(lock: int, daemon: int = 0) -> None:
    """Write into the lock file of a helper, which is this process, what `running` returns.

    Args:
        lock: file descriptor of the lock file.
        daemon: process id of the daemon.
    """
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n{daemon}\n".encode(), 0)


def note_use(lock: int) -> None:
    """Note that a helper begins a run."""
    os.utime(lock)


def make_room() -> None:
    """End helpers for this process to be one, those that were not used for longest."""
    others = [helper for helper in running() if helper.pid != os.getpid()]
    for helper in others[MAX_HELPERS - 1 :]:
        _terminate(helper.pid)


def end_with(daemon: int, known: Iterable[RunningHelper], seconds: float) -> list[int]:
    """Wait until the helpers of a daemon that has exited have exited, and end those that have not, or have no daemon.

    Args:
        daemon: the process id of the daemon; 0 if there was none.
        known: the helpers that ran before the daemon exited.
        seconds: how long to wait before a helper is ended.

    Returns:
        The process ids of the helpers.
    """
    pids = [helper.pid for helper in known if helper.daemon in (daemon, 0)]
    for helper in known:
        if not helper.daemon:
            _terminate(helper.pid)
    polling = Polling(seconds)
    while left := [helper.pid for helper in running() if helper.pid in pids]:
        if not polling.pause():
            for pid in left:
                _terminate(pid)
            break
    return pids


def is_worth_its_memory(idle_seconds: float, has_daemon: bool) -> bool:
    """Return whether a helper without a run for so long is to go on.

    One without a daemon is for programs that jit nothing, or that may not start a daemon.
    """
    return idle_seconds < (_IDLE_SECONDS if has_daemon else _IDLE_SECONDS_ALONE) and not is_memory_short()


def is_memory_short() -> bool:
    """Return whether the machine has too little memory for a helper."""
    with contextlib.suppress(OSError, StopIteration, ValueError), open(_MEMORY) as lines:
        available = next(line for line in lines if line.startswith("MemAvailable:"))
        return int(available.split()[1]) * 1024 < _MIN_AVAILABLE_BYTES
    return False


def _running() -> Iterator[RunningHelper]:
    try:
        locks = list(runtime_directory().glob("run-*.lock"))
    except OSError:
        return
    for lock in locks:
        # A helper may exit at any time.
        with contextlib.suppress(OSError, ValueError, IndexError):
            if Address(lock.with_suffix(".sock")).is_held():
                pid, daemon = map(int, lock.read_text().split())
                idle = max(0.0, time.time() - lock.stat().st_mtime)
                yield RunningHelper(pid, daemon, _memory_of(pid), _age_of(pid), idle)


def _memory_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _age_of(pid: int) -> float:
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return float(Path("/proc/uptime").read_text().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")


def _terminate(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
