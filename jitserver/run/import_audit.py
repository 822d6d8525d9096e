"""Audit of a helper's imports: the files, variables and directories that they read, which must not change."""

import builtins
import io
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

FOLDERS = {"multiprocessing.process": "ORIGINAL_DIR", "rich": "_IMPORT_CWD"}
"""Modules that store the working directory of their import, and the names under which they store it."""

_MAY_ASK = (*FOLDERS, "tempfile")
"""Modules that may ask for the working directory: their stored value is corrected, or used as a last resort only."""

_ITERATES = {"tqdm.utils": "TQDM_"}
"""Modules that iterate over all environment variables, and the prefix of the names that they look for."""

_OF_THE_SYSTEM = ("/dev/", "/proc/", "/sys/")
"""Directories of system files, which have no lasting modification times and change only with the machine."""

_BETWEEN = ("_collections_abc", "collections.abc", "genericpath", "os", "pathlib", "posixpath", __name__)


class Footprint:
    """Context that records the inputs of the modules that are imported in it.

    Attributes:
        module: name of the module that is imported now.
        misread: input of the imports that differs between runs; empty if there is none.
        too_early: modules that read a variable which a later module sets, and the reason why they are unfit: a program
            may import them in the other order.
    """

    def __init__(self) -> None:
        self.module = ""
        self.misread = ""
        self.too_early: dict[str, str] = {}
        self._variables: set[str] = set()
        self._readers: dict[str, set[str]] = {}
        self._prefixes: set[str] = set()
        self._given = ""
        self._relative: set[str] = set()
        self._read: set[str] = set()
        self._looked_for: set[str] = set()
        self._kinds: dict[str, int] = {}
        self._files: dict[str, tuple[int, ...] | None] = {}
        self._environment = dict(os.environ)

    def __enter__(self) -> "Footprint":
        # Stamp first, so that packages that are installed during the imports show as changes.
        self._stamp_all(sys.path)
        footprint = self

        class Noting(os._Environ):  # type: ignore[type-arg]
            def __getitem__(self, key: Any) -> Any:
                # `items` looks up each name that `__iter__` yields: `_prefixes` covers these look-ups.
                if key != footprint._given:
                    footprint._note(key)
                    footprint._readers.setdefault(key, set()).add(footprint.module)
                return super().__getitem__(key)

            def __setitem__(self, key: Any, value: Any) -> None:
                footprint._note(key)
                if own_get(key) != value:
                    footprint._note_change(key)
                super().__setitem__(key, value)

            def __delitem__(self, key: Any) -> None:
                footprint._note(key)
                footprint._note_change(key)
                super().__delitem__(key)

            def __iter__(self) -> Iterator[Any]:
                prefix = _ITERATES.get(_caller())
                if prefix is None:
                    footprint.misread = "all variables"
                else:
                    footprint._prefixes.add(prefix)
                for key in super().__iter__():
                    footprint._given = key
                    yield key
                footprint._given = ""

        def getcwd() -> str:
            if _caller() not in _MAY_ASK:
                self.misread = "the working folder"
            return own_getcwd()

        def note_path(path: Any, absolute: set[str]) -> None:
            if isinstance(path, (str, bytes, os.PathLike)):
                name = os.fsdecode(path)
                (absolute if os.path.isabs(name) else self._relative).add(name)

        def noting_stat(path: Any, **options: Any) -> Any:
            note_path(path, self._looked_for)
            return own_stat(path, **options)

        def listdir(path: Any = ".") -> Any:
            note_path(path, self._read)
            return own_listdir(path)

        def scandir(path: Any = ".") -> Any:
            note_path(path, self._read)
            return own_scandir(path)

        def noting_open(file: Any, *arguments: Any, **options: Any) -> Any:
            note_path(file, self._read)
            return own_open(file, *arguments, **options)

        def own_get(key: str) -> str | None:
            value = os.environb.get(os.fsencode(key))
            return None if value is None else os.fsdecode(value)

        own_getcwd, own_stat, own_open = os.getcwd, os.stat, builtins.open
        own_listdir, own_scandir = os.listdir, os.scandir
        self._own: tuple[Any, ...] = (own_getcwd, own_stat, own_listdir, own_scandir, own_open, os.environ.__class__)
        os.getcwd, os.stat, os.listdir, os.scandir = getcwd, noting_stat, listdir, scandir
        builtins.open = io.open = noting_open
        os.environ.__class__ = Noting
        return self

    def __exit__(self, *_: object) -> None:
        os.getcwd, os.stat, os.listdir, os.scandir, builtins.open, os.environ.__class__ = self._own
        io.open = builtins.open
        self._stamp_all(self._paths())
        self._kinds = {path: _kind(path) for path in self._looked_for} | self._kinds

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
                return f"{path}, for which imports have looked, has come or gone"
        return ""

    def differs(self, environment: Mapping[str, str], cwd: str) -> str:
        """Return why this run cannot reuse the preloaded modules: the first variable or file that differs."""
        for path in self._relative:
            if os.path.lexists(os.path.join(cwd, path)):
                return f"imports read {path} in the working folder"
        names = {
            name for prefix in self._prefixes for name in {*environment, *self._environment} if name.startswith(prefix)
        }
        for name in sorted(self._variables | names):
            if environment.get(name) != self._environment.get(name):
                return f"the variable {name}, which imports read, is not that of the process that has made them"
        return ""

    def _stamp_all(self, paths: Iterable[str]) -> None:
        """Stamp the paths that have no stamp yet, and keep earlier stamps, so that later changes show."""
        self._files = {path: _stamp(path) for path in paths if path} | self._files

    def _note(self, name: Any) -> None:
        if isinstance(name, str):
            self._variables.add(name)

    def _note_change(self, name: Any) -> None:
        for reader in self._readers.get(name, set()) - {self.module}:
            self.too_early[reader] = f"it reads the variable {name}, which {self.module} sets"

    def _paths(self) -> set[str]:
        paths = {file for module in list(sys.modules.values()) if (file := _file_of(module))}
        folders = {folder for module in list(sys.modules.values()) for folder in _folders_of(module)}
        return paths | folders | {path for path in self._read if not path.startswith(_OF_THE_SYSTEM)}


def _caller() -> Any:
    """Return the name of the calling module, skipping the modules in `_BETWEEN`."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") in _BETWEEN:
        frame = frame.f_back
    return frame and frame.f_globals.get("__name__")


def _file_of(module: Any) -> str | None:
    file = getattr(module, "__file__", None)
    return file if isinstance(file, str) else None


def _folders_of(module: Any) -> list[str]:
    try:
        return [folder for folder in getattr(module, "__path__", ()) if isinstance(folder, str)]
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
