"""The crash report: a file beside the crash journal in which a crashing daemon leaves the stacks of its threads.

Only the daemon's parent could learn how it ended, and the parent may be a client that has exited. A fatal signal
(SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL) makes `faulthandler` write to the file, and the kernel counts the processes
that it killed for lack of memory. Without either sign, the daemon was killed from outside, or ended without a signal,
as C's `exit` does.

The first line of the file is the kernel's count at the start of the daemon. The stacks follow.
"""

import contextlib
import faulthandler
import os
from pathlib import Path

_MAX_TEXT_BYTES = 16 << 10


class CrashReport:
    """The crash report of this process.

    Args:
        path: the path of the file, which is created.
        memory_kills: the number of processes that the kernel has killed for lack of memory.
    """

    def __init__(self, path: Path, memory_kills: int) -> None:
        self.path = path
        with open(path, "wb", opener=_open_private) as file:
            file.write(b"%d\n" % memory_kills)

    def enable(self) -> None:
        """Write the stacks of all threads into the file when a fatal signal arrives."""
        # The file descriptor stays open until the process exits.
        faulthandler.enable(os.open(self.path, os.O_WRONLY | os.O_APPEND))

    def remove(self) -> None:
        """Delete the file."""
        with contextlib.suppress(OSError):
            self.path.unlink()


def cause_of_death(path: Path, memory_kills: int) -> str:
    """Return why a daemon died according to its crash report; empty if it was killed from outside.

    Args:
        path: the path of its report.
        memory_kills: the number of processes that the kernel has killed for lack of memory until now.
    """
    try:
        with open(path, "rb") as file:
            count, _, stacks = file.read(_MAX_TEXT_BYTES).partition(b"\n")
    except OSError:
        return ""
    if stacks:
        return stacks.decode(errors="replace").strip()
    if count.isdigit() and memory_kills > int(count):
        return "Killed by the kernel, or another process was, because the memory was full"
    return ""


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_EXCL | os.O_NOFOLLOW, 0o600)
