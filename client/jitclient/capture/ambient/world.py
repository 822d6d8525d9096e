"""What is read from outside while something runs: files and folders, sockets, other programs.

No object of a function shows what installed code opens by itself. Python tells of it, though, so that whoever runs or
traces something may know (`ambient.noted_reads`).
"""

import functools
import os
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from jitclient.capture.ambient.inputs import message_of, note_read, reads, unnoted
from jitclient.capture.user_code.installed import is_installed_path

_CALLS = (
    *("os.posix_spawn", "os.system", "subprocess.Popen", "sqlite3.connect"),
    *("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.gethostname"),
)
_EVENTS = frozenset({"ctypes.dlopen", "mmap.__new__", "open", "os.listdir", "os.scandir", *_CALLS})

IMPORTS_AND_QUOTES = frozenset(
    {
        "importlib._bootstrap",
        "importlib._bootstrap_external",
        "_frozen_importlib",
        "_frozen_importlib_external",
        "linecache",
        "tokenize",
    }
)
_OWN = ("jitclient.capture.dump", "jitclient.session.", "jax._src.compilation_cache", "jax._src.xla_bridge")
"""Whose reads are no inputs: a function captured, a daemon reached, a compiled program found, devices looked for."""
_OF_THE_SYSTEM = ("/dev/", "/proc/", "/sys/")
_BINARIES = (".pyc", ".so")  # imports


@functools.cache
def watch() -> None:
    """Begins to note what is read, for whoever wants to know. There is no way back: once per process."""
    sys.addaudithook(_on_event)


def is_installation(path: str) -> bool:
    """Whether a path is the system's or a package's: what lies there does not change under a daemon."""
    return path.startswith(_OF_THE_SYSTEM) or path.endswith(_BINARIES) or is_installed_path(path)


def is_below(modules: frozenset[str]) -> bool:
    """Whether this thread is at work in a function of one of these modules."""
    return any(frame.f_globals.get("__name__") in modules for frame in frames())


def frames() -> Iterator[FrameType]:
    """Those of this thread, that of whoever asks first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _on_event(
    event: str, arguments: tuple[Any, ...], events: frozenset[str] = _EVENTS, asked: threading.local = reads
) -> None:
    # Its own names, because a process that ends empties modules before the last files are opened.
    if event not in events or getattr(asked, "noted", None) is None:
        return
    with unnoted():  # to find out whether a file is an installed one opens files itself
        what = input_of(event, arguments)
    if what:
        note_read(message_of(what))


def input_of(event: str, arguments: tuple[Any, ...]) -> str:
    """What an event reads from outside; empty if it is nothing that may differ at the next run."""
    if event in _CALLS:
        return "" if _is_our_own() else event
    if event == "mmap.__new__":
        return "" if arguments[0] == -1 or _is_our_own() else "mapped memory"
    path = "." if arguments[0] is None else arguments[0]
    if not isinstance(path, (str, bytes)) or (event == "open" and not _is_to_read(*arguments[1:])):
        return ""
    name = os.fsdecode(path)
    if event == "ctypes.dlopen" and os.sep not in name:
        return ""  # a library of the system
    if is_installation(name) or _is_our_own():
        return ""
    if (event != "open" or name.endswith(".py")) and is_below(IMPORTS_AND_QUOTES):
        return ""
    return f"{_NOUNS.get(event, 'folder')} {name!r}"


_NOUNS = {"open": "file", "ctypes.dlopen": "library"}


def _is_to_read(mode: str | None, flags: int) -> bool:
    return "r" in mode or "+" in mode if mode is not None else not flags & os.O_WRONLY


def _is_our_own() -> bool:
    return any(str(frame.f_globals.get("__name__")).startswith(_OWN) for frame in frames())
