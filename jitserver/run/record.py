"""Record of a run for the command that watches over it: the user's files that the program executes, and its report.

A file is noted when Python executes it as a module, in memory that the record's file maps. No end of the process loses
these notes. They are no write, which `fresh_start.py` would count as an effect of the program, and open no file, which
a trace could take for an input of its own.
"""

import atexit
import contextlib
import mmap
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

from jitclient.capture.user_code.installed import OWN_PACKAGES, is_installed_path

_FILES = "files"
_REPORT = "report.json"
_BYTES = 1 << 20
_LIBRARIES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}", os.path.dirname(os.__file__) + os.sep)
"""Parts of the paths of most installed modules, which are not noted. `files` leaves out the others."""


class UsedFile(NamedTuple):
    """File that a run executed, and the time of the file's last change, in nanoseconds, at that moment."""

    path: str
    mtime_ns: int


def create(directory: Path) -> None:
    """Make an empty record in a directory, for one run."""
    (directory / _REPORT).unlink(missing_ok=True)
    with open(directory / _FILES, "wb") as file:
        file.truncate(_BYTES)


def files(directory: Path) -> list[UsedFile]:
    """Return the user's files that the run of a record has executed until now, without those of installed packages."""
    own = tuple(f"{os.path.dirname(sys.modules[name].__file__ or '')}{os.sep}" for name in OWN_PACKAGES)
    notes = (directory / _FILES).read_bytes().partition(b"\0\0")[0].split(b"\0")
    found = [os.fsdecode(note).partition(" ") for note in notes if note]
    return [
        UsedFile(path, int(mtime_ns))
        for mtime_ns, _, path in found
        if not path.startswith(own) and not is_installed_path(path)
    ]


def report(directory: Path) -> bytes:
    """Return the report of a run in JSON, as `--report=json` prints it; empty without one.

    A run that was killed has none.
    """
    with contextlib.suppress(OSError):
        return (directory / _REPORT).read_bytes()
    return b""


def write_report(directory: Path, text: str) -> None:
    """Write the report of a run into its record.

    Raises:
        OSError: the command has ended and removed the record, or the disk is full.
    """
    temporary = directory / f"{_REPORT}.{os.getpid()}"
    temporary.write_text(text)
    temporary.replace(directory / _REPORT)


def begin(directory: str, packages: Sequence[str], preloaded: tuple[int, float] | None, why_fresh: str) -> None:
    """Begin the record of this process, which is about to run a program.

    Args:
        directory: directory in which `create` made the record.
        packages: the installed packages whose jits run on the daemon.
        preloaded: how many modules a helper has imported, and the seconds that this took; None without a helper.
        why_fresh: why a run has no helper; empty if it has one.
    """
    from jitclient.api.report import json_report  # loads msgspec

    pid, where = os.getpid(), Path(directory).absolute()

    def at_exit() -> None:
        # A failure here does not matter to the user of the program.
        with contextlib.suppress(Exception):
            if os.getpid() == pid:
                write_report(where, json_report(packages, preloaded, why_fresh))

    atexit.register(at_exit)
    # The command that would read the record may have ended.
    with contextlib.suppress(OSError, ValueError), open(where / _FILES, "r+b") as file:
        memory = mmap.mmap(file.fileno(), _BYTES)
        # A run that starts again in a fresh process has made notes before.
        memory[:] = bytes(_BYTES)
        sys.addaudithook(_noting(memory))


def _noting(memory: mmap.mmap) -> Callable[[str, tuple[Any, ...]], None]:
    """Return the audit hook that notes the files of executed modules in memory.

    The hook uses no globals: at the interpreter's exit, modules are emptied before the last events.
    """
    getpid, absolute, stat, encode, code_type, libraries = (
        os.getpid,
        os.path.abspath,
        os.stat,
        os.fsencode,
        CodeType,
        _LIBRARIES,
    )
    pid, end, known = getpid(), 0, set[str]()

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal end
        if event != "exec":
            return
        code = arguments[0]
        if type(code) is not code_type or code.co_name != "<module>" or code.co_filename in known:
            return
        name = code.co_filename
        if name.startswith("<") or any(part in name for part in libraries) or getpid() != pid:
            return
        known.add(name)
        try:
            path = absolute(name)
            line = encode(f"{stat(path).st_mtime_ns} {path}\0")
        # The file is in an archive, or was deleted; an error here would fail the program's import.
        except Exception:
            return
        if end + len(line) < len(memory):
            memory[end : end + len(line)] = line
            end += len(line)

    return note
