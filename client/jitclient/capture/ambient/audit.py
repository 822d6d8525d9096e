"""Ambient reads noticed while code runs: of files, directories, sockets and other programs.

The objects that a function refers to do not show which files installed code opens. Python's audit events do; this
module turns them into notes for `inputs.recorded_reads`.
"""

import builtins
import functools
import os
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from jitclient.capture.ambient.inputs import message_of, reads, record_read, unrecorded
from jitclient.capture.user_code.installed import is_data_of_package, is_installed_path

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
_OWN_PACKAGES = frozenset({"jitclient", "jitserver"})
_OF_USERS = "jitclient.calls.deps"
"""Module of ours that reads for the user: the declared inputs of a function that the observed one calls."""
_OWN_WITH_OTHERS = frozenset({"jitclient.capture.dump", "jax._src.compilation_cache", "jax._src.xla_bridge"})
"""Modules that capture a function, find a compiled program or look for devices: no read of theirs, nor of what they
call, is an ambient input of the function."""
THE_FUNCTION = "the function itself"
_DEVICES = "/dev/"
_ABOUT_THE_MACHINE = ("/proc/", "/sys/")
# Imports open these files.
_BINARIES = (".pyc", ".so")


@functools.cache
def install_hook() -> None:
    """Install the audit hook that notes reads, once per process; Python cannot remove it."""
    sys.addaudithook(_on_event)


def is_installation(path: str, is_read: bool = False) -> bool:
    """Return whether a path is a device or belongs to an installed package; not for data of packages that is read.

    Such files do not change while a daemon runs, and the key has the versions of packages, but not of all their data.
    """
    # The search for packages also opens the standard library's archive, which need not exist.
    is_archive = path.endswith(".zip") and path in sys.path
    if is_archive or path.startswith(_DEVICES) or path.endswith(_BINARIES):
        return True
    return is_installed_path(path) and not (is_read and is_data_of_package(path))


def is_below(modules: frozenset[str]) -> bool:
    """Return whether a function of one of these modules is on this thread's stack."""
    return any(frame.f_globals.get("__name__") in modules for frame in frames())


def frames() -> Iterator[FrameType]:
    """Iterate over this thread's frames, innermost first, starting with the caller's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _on_event(
    event: str, arguments: tuple[Any, ...], events: frozenset[str] = _EVENTS, recorder: threading.local = reads
) -> None:
    # Parameters hold the names that the hook needs: at interpreter exit, modules are emptied before the last files are
    # opened.
    if event not in events or getattr(recorder, "noted", None) is None:
        return
    # The check whether a file is an installed one opens files itself.
    with unrecorded():
        what = input_of(event, arguments)
    if what:
        record_read(message_of(what))


def input_of(event: str, arguments: tuple[Any, ...]) -> str:
    """Return the ambient input that an audit event reads; empty if it cannot differ at the next run."""
    if event in _CALLS:
        return "" if _is_our_own() else event
    if event == "mmap.__new__":
        return "" if arguments[0] == -1 or _is_our_own() else "mapped memory"
    path = "." if arguments[0] is None else arguments[0]
    if not isinstance(path, (str, bytes)) or (event == "open" and not _is_to_read(*arguments[1:])):
        return ""
    name = os.fsdecode(path)
    if event == "ctypes.dlopen" and os.sep not in name:
        # A bare name is a library of the system.
        return ""
    if is_installation(name, is_read=event != "ctypes.dlopen") or _is_our_own():
        return ""
    # Imports list directories and read sources, and some of packages ask for the number of processors and the like.
    is_of_import = event != "open" or name.endswith(".py") or name.startswith(_ABOUT_THE_MACHINE)
    if is_of_import and is_below(IMPORTS_AND_QUOTES):
        return ""
    return f"{_NOUNS.get(event, 'directory')} {name!r}"


_NOUNS = {"open": "file", "ctypes.dlopen": "library"}


def _is_to_read(mode: str | None, flags: int) -> bool:
    return "r" in mode or "+" in mode if mode is not None else not flags & os.O_WRONLY


def reader(skipped: frozenset[str] = frozenset({__name__})) -> str:
    """Return the module of the nearest function outside the standard library, or THE_FUNCTION for captured code.

    Empty if there is none. The skipped modules watch those that read.
    """
    for frame in frames():
        module = str(frame.f_globals.get("__name__"))
        if frame.f_builtins is not vars(builtins):
            # Captured code has its own builtins.
            return THE_FUNCTION
        if module.partition(".")[0] not in sys.stdlib_module_names and module not in skipped:
            return module
    return ""


def _is_our_own() -> bool:
    nearest = reader()
    if nearest.partition(".")[0] in _OWN_PACKAGES:
        return nearest != _OF_USERS
    return is_below(_OWN_WITH_OTHERS)
