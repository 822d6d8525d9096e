"""Imports of the program's modules by a worker: their sources come from the driver.

Where the host has the same file at the same place, as this machine and a shared home do, that file is imported, with
the data and extension modules beside it. Elsewhere the sources are laid out as files, so that tracebacks, `inspect` and
captures find the text, in a directory of the worker's own. A worker that was killed leaves it behind, unlocked, and the
next one removes it.
"""

import contextlib
import importlib.machinery
import importlib.util
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType

from jitclient.core.directories import runtime_directory
from jitclient.core.file_lock import lock, open_lock, try_lock
from jitclient.errors import CaptureError, DaemonUnavailable
from jitclient.pools.messages import Source

_ask = Callable[[str], tuple[Source, bytearray]]


class DriverModules:
    """Finder of the driver's modules: a meta path hook.

    The names that the program had imported are the driver's, whatever this host has. Others are looked for here first.

    Args:
        ask: asks the driver for the source of a module.
        names: top-level names of the driver's modules.

    Attributes:
        names: the same; they grow as the driver imports more.
    """

    def __init__(self, ask: _ask, names: Iterable[str]) -> None:
        self._ask, self.names = ask, frozenset(names)
        self._lock = threading.RLock()
        base = runtime_directory() / "pool"
        _remove_abandoned(base)
        base.mkdir(mode=0o700, exist_ok=True)
        self._directory = Path(tempfile.mkdtemp(dir=base))
        # Held until the process exits, however it exits.
        self._held = open_lock(self._directory.with_suffix(".lock"))
        lock(self._held)
        self._first, self._last = _Finder(self, True), _Finder(self, False)

    def install(self) -> None:
        """Make imports find the driver's modules."""
        sys.meta_path.insert(0, self._first)
        sys.meta_path.append(self._last)

    def remove_files(self) -> None:
        """Remove the files of the modules."""
        _remove(self._directory)
        self._held.close()

    def is_named(self, name: str) -> bool:
        """Return whether a module is one that the program had imported."""
        return name.partition(".")[0] in self.names

    def find(self, name: str, target: ModuleType | None) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a module whose source the driver has."""
        with self._lock:
            source, text = self._ask(name)
            if source.failure:
                raise CaptureError(source.failure)
            if not source.found:
                return None
            path = self._place_of(source, text)
        places = [os.fspath(path.parent)] if source.is_package else None
        return importlib.util.spec_from_file_location(name, path, submodule_search_locations=places)

    def _place_of(self, source: Source, text: bytearray) -> Path:
        """Return the file to import: the driver's own if this host has it, or else a new one with the text."""
        own = Path(source.path)
        if source.path and (not source.path.endswith(".py") or _holds(own, text)):
            return own
        at = self._directory.joinpath(*source.name.split("."))
        path = at / "__init__.py" if source.is_package else at.with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
        return path


def _holds(path: Path, text: bytearray) -> bool:
    with contextlib.suppress(OSError):
        return path.read_bytes() == text
    return False


def _remove_abandoned(base: Path) -> None:
    for path in base.glob("*.lock"):
        with contextlib.suppress(OSError, DaemonUnavailable), open_lock(path) as file:
            if try_lock(file):
                _remove(path.with_suffix(""))


def _remove(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.with_suffix(".lock").unlink(missing_ok=True)


class _Finder:
    def __init__(self, modules: DriverModules, is_first: bool) -> None:
        self._modules, self._is_first = modules, is_first

    def find_spec(
        self, name: str, path: object = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return self._modules.find(name, target) if self._modules.is_named(name) is self._is_first else None
