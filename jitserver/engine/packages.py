"""The packages that this daemon has loaded: their versions, and whether the disk has others by now."""

import contextlib
import importlib.metadata
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from jitclient.capture.installed import package_of

OURS = ("jitserver", "jax", "jaxlib", "numpy", "ml_dtypes", "cloudpickle")
"""Packages that every program depends on."""

Stamp = tuple[int, int] | None


class Packages:
    """Versions as they were when this daemon first met each package; it keeps what it has imported."""

    def __init__(self) -> None:
        self._met: dict[str, tuple[str, list[tuple[Path, Stamp]]]] = {}
        self._seen: set[str] = set()  # top-level names in sys.modules
        self._loaded: set[str] = set(OURS)
        self._distributions = dict(importlib.metadata.packages_distributions())
        for name in OURS:
            self._met[name] = self._meet(name)
        self.meet_loaded()

    def version(self, name: str) -> str:
        """The version of the distribution that gives an import its name."""
        if name not in self._met:
            if name not in self._distributions:
                self._distributions = dict(importlib.metadata.packages_distributions())
            self._met[name] = self._meet(name)
        return self._met[name][0]

    def meet_loaded(self) -> None:
        """Meets the packages that were imported since the last time, also those that no lookup names."""
        new = {name.partition(".")[0] for name in list(sys.modules)} - self._seen
        if not new:
            return
        self._seen |= new
        new = {name for name in new - sys.stdlib_module_names if package_of(name) is not None}
        if not new <= self._distributions.keys():
            self._distributions = dict(importlib.metadata.packages_distributions())
        found = new & self._distributions.keys()
        for name in found:
            self.version(name)
        self._loaded |= found

    def replaced(self, names: Iterable[str] = ()) -> list[str]:
        """Those of `names`, and of the packages that are loaded, that were upgraded or removed since."""
        wanted = sorted(self._loaded.union(names))
        return [name for name in wanted if name in self._met and _was_replaced(self._met[name][1])]

    def _meet(self, name: str) -> tuple[str, list[tuple[Path, Stamp]]]:
        for found in self._distributions.get(name, [name]):
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                distribution = importlib.metadata.distribution(found)
                files = [Path(str(f.locate())) for f in distribution.files or () if f.name == "METADATA"]
                return distribution.version, [(file, _stamp(file)) for file in files]
        return str(getattr(sys.modules.get(name), "__version__", "unknown")), []


def _was_replaced(files: list[tuple[Path, Stamp]]) -> bool:
    return any(_stamp(file) != stamp for file, stamp in files)


def _stamp(file: Path) -> Stamp:
    try:
        stat = os.stat(file)
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino
