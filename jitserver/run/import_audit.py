"""Audit of a helper's imports: the files, variables and directories that they read, which must not change."""

import builtins
import io
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

CWD_ATTRIBUTES = {"multiprocessing.process": "ORIGINAL_DIR", "rich": "_IMPORT_CWD"}
"""Modules that store the working directory of their import, and the names under which they store it."""

_CWD_READERS = (*CWD_ATTRIBUTES, "tempfile")
"""Modules that may ask for the working directory: their stored value is corrected, or used as a last resort only."""

_ITERATES = {"tqdm.utils": "TQDM_"}
"""Modules that iterate over all environment variables, and the prefix of the names that they look for."""

_SYSTEM_DIRECTORIES = ("/dev/", "/proc/", "/sys/")
"""Directories of system files, which have no lasting modification times and change only with the machine."""

_SKIPPED_MODULES = ("_collections_abc", "collections.abc", "genericpath", "os", "pathlib", "posixpath", __name__)


class ImportAudit:
    """Context that records the inputs of the modules that are imported in it.

    Attributes:
        module: name of the module that is imported now.
        varying_input: input of the imports that differs between runs; empty if there is none.
        read_before_set: modules that read a variable which a later module sets, and the reason why they are unfit: a
            program may import them in the other order.
    """

    def __init__(self) -> None:
        self.module = ""
        self.varying_input = ""
        self.read_before_set: dict[str, str] = {}
        self._variables: set[str] = set()
        self._readers: dict[str, set[str]] = {}
        self._prefixes: set[str] = set()
        self._iterated = ""
        self._relative: set[str] = set()
        self._read: set[str] = set()
        self._looked_up: set[str] = set()
        self._kinds: dict[str, int] = {}
        self._files: dict[str, tuple[int, ...] | None] = {}
        self._environment = dict(os.environ)

    def __enter__(self) -> "ImportAudit":
        # Stamp first, so that packages that are installed during the imports show as changes.
        self._stamp_all(sys.path)
        audit = self

        class AuditedEnviron(os._Environ):  # type: ignore[type-arg]
            def __getitem__(self, key: Any) -> Any:
                # `items` looks up each name that `__iter__` yields: `_prefixes` covers these look-ups.
                if key != audit._iterated:
                    audit._note(key)
                    audit._readers.setdefault(key, set()).add(audit.module)
                return super().__getitem__(key)

            def __setitem__(self, key: Any, value: Any) -> None:
                audit._note(key)
                if own_get(key) != value:
                    audit._note_change(key)
                super().__setitem__(key, value)

            def __delitem__(self, key: Any) -> None:
                audit._note(key)
                audit._note_change(key)
                super().__delitem__(key)

            def __iter__(self) -> Iterator[Any]:
                prefix = _ITERATES.get(_caller())
                if prefix is None:
                    audit.varying_input = "all environment variables"
                else:
                    audit._prefixes.add(prefix)
                for key in super().__iter__():
                    audit._iterated = key
                    yield key
                audit._iterated = ""

        def getcwd() -> str:
            if _caller() not in _CWD_READERS:
                self.varying_input = "the working directory"
            return own_getcwd()

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

        def audited_open(file: Any, *arguments: Any, **options: Any) -> Any:
            note_path(file, self._read)
            return own_open(file, *arguments, **options)

        def own_get(key: str) -> str | None:
            value = os.environb.get(os.fsencode(key))
            return None if value is None else os.fsdecode(value)

        own_getcwd, own_stat, own_open = os.getcwd, os.stat, builtins.open
        own_listdir, own_scandir = os.listdir, os.scandir
        self._own: tuple[Any, ...] = (own_getcwd, own_stat, own_listdir, own_scandir, own_open, os.environ.__class__)
        os.getcwd, os.stat, os.listdir, os.scandir = getcwd, audited_stat, listdir, scandir
        builtins.open = io.open = audited_open
        os.environ.__class__ = AuditedEnviron
        return self

    def __exit__(self, *_: object) -> None:
        os.getcwd, os.stat, os.listdir, os.scandir, builtins.open, os.environ.__class__ = self._own
        io.open = builtins.open
        self._stamp_all(self._paths())
        self._kinds = {path: _kind(path) for path in self._looked_up} | self._kinds

    def written(self) -> dict[str, str | None]:
        """Return the environment variables that imports set, with their values, or deleted, with None."""
        now = dict(os.environ)
        names = now.keys() | self._environment.keys()
        return {name: now.get(name) for name in names if now.get(name) != self._environment.get(name)}

    def changed(self) -> str:
        """Return what has changed on the disk since the imports; empty if nothing has."""
        for path, stamp in self._files.items():
            if _stamp(path) != stamp:
                return f"{path} has changed since it was imported"
        for path, kind in self._kinds.items():
            if _kind(path) != kind:
                return f"{path}, which imports looked up, was created or deleted"
        return ""

    def differs(self, environment: Mapping[str, str], cwd: str) -> str:
        """Return why this run cannot reuse the preloaded modules: the first variable or file that differs."""
        for path in self._relative:
            if os.path.lexists(os.path.join(cwd, path)):
                return f"imports read {path} in the working directory"
        names = {
            name for prefix in self._prefixes for name in {*environment, *self._environment} if name.startswith(prefix)
        }
        for name in sorted(self._variables | names):
            if environment.get(name) != self._environment.get(name):
                return (
                    f"environment variable {name} differs from its value when the helper imported modules that read it"
                )
        return ""

    def _stamp_all(self, paths: Iterable[str]) -> None:
        """Stamp the paths that have no stamp yet, and keep earlier stamps, so that later changes show."""
        self._files = {path: _stamp(path) for path in paths if path} | self._files

    def _note(self, name: Any) -> None:
        if isinstance(name, str):
            self._variables.add(name)

    def _note_change(self, name: Any) -> None:
        for reader in self._readers.get(name, set()) - {self.module}:
            self.read_before_set[reader] = f"{reader} reads environment variable {name}, which {self.module} sets"

    def _paths(self) -> set[str]:
        paths = {file for module in list(sys.modules.values()) if (file := _file_of(module))}
        directories = {directory for module in list(sys.modules.values()) for directory in _directories_of(module)}
        return paths | directories | {path for path in self._read if not path.startswith(_SYSTEM_DIRECTORIES)}


def _caller() -> Any:
    """Return the name of the calling module, skipping the modules in `_SKIPPED_MODULES`."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") in _SKIPPED_MODULES:
        frame = frame.f_back
    return frame and frame.f_globals.get("__name__")


def _file_of(module: Any) -> str | None:
    file = getattr(module, "__file__", None)
    return file if isinstance(file, str) else None


def _directories_of(module: Any) -> list[str]:
    try:
        return [directory for directory in getattr(module, "__path__", ()) if isinstance(directory, str)]
    except Exception:  # some modules have odd attributes
        return []


def _kind(path: str) -> int:
    """Return the type of the file at a path; 0 if there is none."""
    try:
        return stat.S_IFMT(os.stat(path).st_mode)
    except (OSError, ValueError):
        return 0


def _stamp(path: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    # The modification time is not enough, because some installers give all files the same one.
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
