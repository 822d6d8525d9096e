"""One program at low priority, with its output in a log file, until it ends or its time is over."""

import contextlib
import ctypes
import os
import platform
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from jitclient.api.report import Report
from jitclient.calls.usage import FOUND
from jitclient.core.digests import digest
from jitclient.core.directories import environment_digest
from jitclient.session.launch import log_directory

_NICE = 19
_GRACE_SECONDS = 10.0
_SET_IO_PRIORITY = {"x86_64": 251, "aarch64": 30}
"""Number of the system call `ioprio_set`, for which the C library has no function, by machine."""
_IO_PROCESS, _IO_IDLE = 1, 3 << 13


class Counts(NamedTuple):
    """Programs of a run, by its own report.

    Attributes:
        made: programs that were made.
        found: programs that existed.
        made_again: programs that existed without their executables.
        in_process: functions that ran in the run's own process, or were traced there.
    """

    made: int
    found: int
    made_again: int
    in_process: int


def log_path(words: Sequence[str]) -> Path:
    """Return the path of a program's log file: each program in each working directory has its own.

    Raises:
        OSError: there is no usable directory for logs.
    """
    name = next((Path(word).stem for word in words if not word.startswith("-")), "program")
    number = digest(repr((os.getcwd(), *words)).encode(errors="surrogateescape"), 4).hex()
    return log_directory() / f"{environment_digest()}-warm-{name}-{number}.log"


def lower_priority() -> None:
    """Let other processes go first, for this process and those that it starts, as far as the system permits it."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, max(_NICE, os.getpriority(os.PRIO_PROCESS, 0)))
    number = _SET_IO_PRIORITY.get(platform.machine())
    if number is not None:
        # A refusal changes nothing: the system call returns -1.
        ctypes.CDLL(None).syscall(number, _IO_PROCESS, 0, _IO_IDLE)


def start(
    words: Sequence[str], log: IO[bytes] | int, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, without input."""
    return subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env={**os.environ, **(environment or {})},
        start_new_session=True,
    )


def wait(process: subprocess.Popen[bytes], seconds: float | None, grace_seconds: float = _GRACE_SECONDS) -> str:
    """Wait for the end of a process, and end it when its time is over or the user interrupts this process.

    Args:
        process: leader of its own session.
        seconds: the time that it has; None for no limit.
        grace_seconds: the time that it has to end after each of SIGINT and SIGTERM.

    Returns:
        Why it was ended: "time" or "interrupt"; empty if it has ended itself.
    """
    why = ""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        why = "time"
    except KeyboardInterrupt:
        why = "interrupt"
    if why:
        _end(process, grace_seconds)
    return why


def _end(process: subprocess.Popen[bytes], grace_seconds: float) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        # Another Ctrl-C does not wait longer.
        with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            process.wait(grace_seconds if number != signal.SIGKILL else None)
            return


def counts(report: bytes) -> Counts | None:
    """Return the counts in a report in JSON; None if there is no report, such as of a process that was killed."""
    try:
        found = msgspec.json.decode(report, type=Report)
    except msgspec.MsgspecError:
        return None
    times = dict.fromkeys(("made", "remade", *FOUND), 0)
    for row in found.programs:
        times[row.level] += row.times
    in_process = len({row.function for row in found.local})
    return Counts(times["made"], sum(times[level] for level in FOUND), times["remade"], in_process)
