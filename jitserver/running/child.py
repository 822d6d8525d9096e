"""Makes a process that was forked from a helper that of a run."""

import contextlib
import fcntl
import io
import os
import signal
import sys
from collections.abc import Collection, Mapping
from typing import Any, TextIO

from jitserver.running.footprint import FOLDERS
from jitserver.running.request import KEPT_BY_PYTHON, Request


def become(
    request: Request, received: list[int], libraries: Collection[int], written: Mapping[str, str | None]
) -> None:
    """Take over all that a request says of the command's process.

    Args:
        request: what it says.
        received: the descriptors that came with it.
        libraries: the descriptors that imported modules hold.
        written: the variables that imports set or deleted.
    """
    _take_descriptors(request.descriptors, received, libraries)
    os.chdir(request.cwd)
    os.umask(request.umask)
    os.environb.clear()
    os.environb.update(request.environment)
    for name, value in written.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    clear_signals()
    for number in request.ignored:
        signal.signal(number, signal.SIG_IGN)
    _renew_streams()
    for module, name in FOLDERS.items():
        if module in sys.modules:
            setattr(sys.modules[module], name, request.cwd)


def clear_signals() -> None:
    """Treat all signals as Python does at its start, except for those that are blocked."""
    for number in signal.valid_signals():
        with contextlib.suppress(OSError, ValueError):  # SIGKILL, SIGSTOP
            signal.signal(number, signal.SIG_IGN if number in KEPT_BY_PYTHON else signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def open_descriptors() -> set[int]:
    """The descriptors of this process."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the folder itself
            fcntl.fcntl(int(name), fcntl.F_GETFD)
            found.add(int(name))
    return found


def _take_descriptors(numbers: list[int], received: list[int], libraries: Collection[int]) -> None:
    above = max(*numbers, *received) + 1
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, above) for descriptor in received]
    for descriptor in open_descriptors() - set(moved) - set(libraries):
        os.close(descriptor)
    for number, descriptor in zip(numbers, moved, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)


def _renew_streams() -> None:
    """Make the standard streams as Python does at its start. That of errors looks the same for whatever it is."""
    for name, number, mode in (("stdin", 0, "rb"), ("stdout", 1, "wb")):
        old = getattr(sys, name)
        new = _stream(number, mode, old)
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


def _stream(number: int, mode: str, like: Any) -> TextIO:
    is_raw = mode == "wb" and like.write_through  # python -u
    buffer: Any = open(number, mode, 0 if is_raw else -1, closefd=False)  # noqa: SIM115
    raw = getattr(buffer, "raw", buffer)
    raw.name = like.name
    buffering = {"line_buffering": raw.isatty() and not like.write_through, "write_through": like.write_through}
    stream: Any = io.TextIOWrapper(buffer, like.encoding, like.errors, newline="\n", **buffering)
    stream.mode = mode[0]
    return stream  # type: ignore[no-any-return]
