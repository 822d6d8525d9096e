"""Conversion of a process that a helper forked into the process of a run."""

import contextlib
import fcntl
import io
import os
import signal
import sys
from typing import Any

from jitclient.core import compat
from jitserver.run.import_watch import CWD_ATTRIBUTES
from jitserver.run.request import KEPT_BY_PYTHON, Request


def become(request: Request, received: list[int]) -> None:
    """Take over the command's process state from a request.

    Args:
        request: the request, with the state of the command's process.
        received: the file descriptors that came with the request.
    """
    _install_fds(request.fds, received)
    os.chdir(request.cwd)
    os.umask(request.umask)
    os.environb.clear()
    os.environb.update(request.environment)
    clear_signals()
    for number in request.ignored:
        signal.signal(number, signal.SIG_IGN)
    _renew_streams()
    for module, name in CWD_ATTRIBUTES.items():
        if module in sys.modules:
            setattr(sys.modules[module], name, request.cwd)
    forget_temporary_directory()
    compat.restart_log_clock()


def forget_temporary_directory() -> None:
    """Let the next use find the directory for temporary files, by the variables of that moment."""
    temporary: Any = sys.modules.get("tempfile")
    if temporary is not None and temporary.tempdir in temporary._candidate_tempdir_list():
        temporary.tempdir = None


def clear_signals() -> None:
    """Reset all signal handlers to those of Python at its start; the mask of blocked signals does not change."""
    for number in signal.valid_signals():
        with contextlib.suppress(OSError, ValueError):  # SIGKILL, SIGSTOP
            signal.signal(number, signal.SIG_IGN if number in KEPT_BY_PYTHON else signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def open_fds() -> set[int]:
    """Return the open file descriptors of this process."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        # Fails for the file descriptor of the directory itself.
        with contextlib.suppress(OSError):
            fcntl.fcntl(int(name), fcntl.F_GETFD)
            found.add(int(name))
    return found


def _install_fds(numbers: list[int], received: list[int]) -> None:
    above = max(*numbers, *received) + 1
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fd in received]
    for fd in open_fds() - set(moved):
        os.close(fd)
    for number, fd in zip(numbers, moved, strict=True):
        os.dup2(fd, number)
        os.close(fd)


def _renew_streams() -> None:
    """Reinitialize standard input and output as Python does at its start.

    The objects stay the same, because imported modules may hold them. Standard error needs no change: its settings do
    not depend on the file that it is connected to.
    """
    _renew(sys.stdin, StandardInput(0, "rb", closefd=False))
    _renew(sys.stdout, io.FileIO(1, "wb", closefd=False))


def _renew(stream: Any, file: io.FileIO) -> None:
    encoding, errors, is_raw = stream.encoding, stream.errors, stream.write_through  # python -u
    buffer: Any = file
    buffer.name = stream.name
    line_buffering = buffer.isatty() and not is_raw
    if isinstance(stream.buffer, io.BufferedIOBase):
        stream.buffer.__init__(buffer, os.fstat(file.fileno()).st_blksize)  # type: ignore[misc]
        buffer = stream.buffer
    stream.__init__(buffer, encoding, errors, "\n", line_buffering, is_raw)
    stream.mode = file.mode[0]


class StandardInput(io.FileIO):
    """File behind a run's standard input, which notes whether anything was read.

    Attributes:
        was_read: whether one of these files was read.
    """

    was_read = False

    def readinto(self, buffer: Any) -> Any:
        """Read into a buffer."""
        StandardInput.was_read = True
        return super().readinto(buffer)

    def readall(self) -> Any:
        """Read all that is left."""
        StandardInput.was_read = True
        return super().readall()

    def read(self, size: int | None = -1) -> Any:
        """Read at most some bytes."""
        StandardInput.was_read = True
        return super().read(size)
