"""Audit of a helper's imports: what they read that may differ in a run, such as files, which must not change."""

import builtins
import io
import os
import stat
import sys
from collections.abc import Iterable, Set
from os import stat as own_stat  # which the audit does not note
from typing import Any

from jitclient.capture.user_code.installed import OWN_PACKAGES, stored
from jitclient.core.digests import digest
from jitclient.core.file_stamp import FileStamp, file_stamp
from jitserver.run.import_graph import running_modules
from jitserver.run.replacement import Replacement

CWD_ATTRIBUTES = {"multiprocessing.process": "ORIGINAL_DIR", "rich": "_IMPORT_CWD"}
"""Modules that store the working directory of their import, and the names under which they store it."""

_CWD_READERS = (*CWD_ATTRIBUTES, "tempfile")
"""Modules that may ask for the working directory: their stored value is corrected, or used as a last resort only."""

_STREAMS = (0, 1, 2)
_SIZE = -1
"""What imports ask about terminals: whether a standard stream is one, by its number; and how large it is."""

_SYSTEM_DIRECTORIES = ("/dev/", "/proc/", "/sys/")
"""Directories of system files, which have no lasting modification times and change only with the machine."""

_SKIPPED_MODULES = (
    *("_collections_abc", "collections.abc", "genericpath", "os", "pathlib", "posixpath"),
    *(__name__, Replacement.__module__),
)


class ImportAudit:
    """Context that records the inputs of the modules that are imported in it.

    Attributes:
        has_read: an input of an import that is different in each run; empty if there is none.
    """

    def __init__(self, terminal: bool) -> None:
        """Record nothing yet.

        Args:
            terminal: whether the imports see the standard streams as terminals.
        """
        self.has_read = ""
        self._terminal = terminal
        self._askers: dict[int, set[str]] = {number: set() for number in (*_STREAMS, _SIZE)}
        self._find_temporary_directory: set[str] = set()
        self._relative: set[str] = set()
        self._read: set[str] = set()
        self._looked_up: set[str] = set()
        self._kinds: dict[str, int] = {}
        self._files: dict[str, FileStamp] = {}
        self._replacement = Replacement()

    def __enter__(self) -> "ImportAudit":
        # Stamp first, so that packages that are installed during the imports show as changes.
        self._stamp_all(sys.path)

        def getcwd() -> str:
            caller = _caller()
            if caller == "tempfile":
                self._find_temporary_directory.update(running_modules())
            if caller not in _CWD_READERS:
                self.has_read = "the working directory"
            return own_getcwd()

        def read_arguments() -> None:
            if _caller().partition(".")[0] not in OWN_PACKAGES:
                self.has_read = "the arguments of the program"

        def isatty(number: int) -> bool:
            if number not in _STREAMS:
                return own_isatty(number)
            self._askers[number].update(running_modules())
            return self._terminal

        def get_terminal_size(*arguments: Any) -> Any:
            self._askers[_SIZE].update(running_modules())
            return own_get_terminal_size(*arguments)

        def note_path(path: Any, absolute: set[str]) -> None:
            if isinstance(path, (str, bytes, os.PathLike)):
                name = os.fsdecode(path)
                (absolute if os.path.isabs(name) else self._relative).add(name)

        def audited_stat(path: Any, **options: Any) -> Any:
            note_path(path, self._looked_up)
            return own_stat(path, **options)

        def listdir(path: Any = ".") -> Any:
            note_path(path, self._read)
            return own_listdir(path)

        def scandir(path: Any = ".") -> Any:
            note_path(path, self._read)
            return own_scandir(path)

        def audited_open(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
            # Nothing is read of a file that is made, as tempfile does in a directory that changes all the time.
            if mode[:1] not in ("w", "x"):
                note_path(file, self._read)
            return own_open(file, mode, *arguments, **options)

        own_isatty, own_get_terminal_size = os.isatty, os.get_terminal_size
        for function in (isatty, get_terminal_size):
            self._replacement.put(os, function.__name__, function)
        for number, stream in zip(_STREAMS, (sys.stdin, sys.stdout, sys.stderr), strict=True):
            self._replacement.put(stream, "isatty", lambda number=number: isatty(number))
        # Each look-up: an import that keeps the list, as in a default argument, would have the helper's in each run.
        self._replacement.watch(sys, "argv", read_arguments)
        own_getcwd, own_open = os.getcwd, builtins.open
        own_listdir, own_scandir = os.listdir, os.scandir
        for look in (getcwd, listdir, scandir):
            self._replacement.put(os, look.__name__, look)
        self._replacement.put(os, "stat", audited_stat)
        self._replacement.put(builtins, "open", audited_open)
        self._replacement.put(io, "open", audited_open)
        return self

    def __exit__(self, *_: object) -> None:
        self._replacement.undo()
        self._stamp_all(self._paths())
        self._kinds = {path: _kind(path) for path in self._looked_up} | self._kinds

    def inputs(self) -> tuple[set[str], set[str], set[str]]:
        """Return the paths that imports have read, those that they have looked up, and the relative ones."""
        return {*self._read}, {*self._looked_up}, {*self._relative}

    def changed(self) -> str:
        """Return what has changed on the disk since the imports; empty if nothing has."""
        for path, stamp in self._files.items():
            if file_stamp(path) != stamp:
                return f"{path} has changed since it was imported"
        for path, kind in self._kinds.items():
            if _kind(path) != kind:
                return f"{path}, which imports looked up, was created or deleted"
        return ""

    def finds_other_files(self, cwd: str) -> str:
        """Return a relative path that imports have looked up, and that exists in a directory; empty if there is none.

        Helpers have no such file in their working directory.
        """
        return next((path for path in self._relative if os.path.lexists(os.path.join(cwd, path))), "")

    def differs_in_terminals(self, modules: Set[str]) -> str:
        """Return what imports of modules asked about terminals and would find otherwise now; empty if nothing."""
        for number in _STREAMS:
            if not modules.isdisjoint(self._askers[number]) and os.isatty(number) != self._terminal:
                answer = "no" if self._terminal else "yes"
                return f"imports ask whether file {number} is a terminal, and the answer is {answer} now"
        asks_size = not modules.isdisjoint(self._askers[_SIZE])
        return "imports ask how large the terminal is" if asks_size and any(map(os.isatty, _STREAMS)) else ""

    def find_temporary_directory(self, modules: Set[str]) -> bool:
        """Return whether the imports of modules asked for the directory for temporary files, which Python stores."""
        return not modules.isdisjoint(self._find_temporary_directory)

    def _stamp_all(self, paths: Iterable[str]) -> None:
        """Stamp the paths that have no stamp yet, and keep earlier stamps, so that later changes show."""
        self._files = {path: file_stamp(path) for path in paths if path} | self._files

    def _paths(self) -> set[str]:
        paths = {file for module in list(sys.modules.values()) if (file := _file_of(module))}
        directories = {directory for module in list(sys.modules.values()) for directory in _directories_of(module)}
        return paths | directories | {path for path in self._read if not path.startswith(_SYSTEM_DIRECTORIES)}


def _caller() -> str:
    """Return the name of the calling module, skipping the modules in `_SKIPPED_MODULES`."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") in _SKIPPED_MODULES:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__")) if frame is not None else ""


def _file_of(module: Any) -> str | None:
    file = stored(module, "__file__")
    return file if isinstance(file, str) else None


def _directories_of(module: Any) -> list[str]:
    try:
        return [directory for directory in stored(module, "__path__") or () if isinstance(directory, str)]
    except Exception:  # some modules have odd attributes
        return []


def digest_of_inputs(read: Iterable[str], looked_up: Iterable[str], relative: Iterable[str]) -> str:
    """Return a digest of the files at paths, as `ImportAudit.inputs` returns these; another one when a file changes."""
    stamps = [(path, file_stamp(path)) for path in sorted(read) if not path.startswith(_SYSTEM_DIRECTORIES)]
    kinds = [(path, _kind(path)) for path in sorted(looked_up)]
    return digest(repr((stamps, kinds, sorted(relative))).encode(errors="surrogateescape"), 8).hex()


def stamps_of(modules: Iterable[str]) -> dict[str, FileStamp]:
    """Return a stamp of the file of each module, another one when the file is edited or replaced."""
    return {name: file_stamp(file) for name in modules if (file := _file_of(sys.modules.get(name)))}


def _kind(path: str) -> int:
    """Return the type of the file at a path; 0 if there is none."""
    try:
        return stat.S_IFMT(own_stat(path).st_mode)
    except (OSError, ValueError):
        return 0
