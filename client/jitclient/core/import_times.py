"""Durations of a program's imports, for its time line."""

import sys
import threading
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from jitclient.core import timeline

MIN_NANOSECONDS = 1_000_000
"""Minimum duration of an import that is added."""

_running = threading.local()
"""Packages of which a module runs in this thread: only the outermost of a package's modules is added."""


def observe() -> None:
    """Add the imports from now on to the time line, except those of Python's own modules."""
    if not any(isinstance(finder, _ImportTimes) for finder in sys.meta_path):
        sys.meta_path.insert(0, _ImportTimes())


class _ImportTimes:
    """Import finder that finds what the others find, and times how long the modules run."""

    def __init__(self) -> None:
        self._asking = threading.local()

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        is_timed = timeline.current is not None and name.partition(".")[0] not in sys.stdlib_module_names
        # Another finder may ask all the others in turn.
        if not is_timed or getattr(self._asking, "name", None) == name:
            return None
        before, self._asking.name = getattr(self._asking, "name", None), name
        try:
            spec: Any = self._spec_of_others(name, path, target)
        finally:
            self._asking.name = before
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _TimedLoader(spec.loader)
        return spec

    def _spec_of_others(self, name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        for finder in list(sys.meta_path):
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if find else None
            if spec is not None:
                return spec
        return None


class _TimedLoader:
    """Loader of one module, which steps aside before the module runs."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        create = getattr(self._loader, "create_module", None)
        module: ModuleType | None = create(spec) if create else None
        return module

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        line = timeline.current
        if line is None:
            self._loader.exec_module(module)
            return
        packages: set[str] = vars(_running).setdefault("packages", set())
        package = module.__name__.partition(".")[0]
        if package in packages:
            self._loader.exec_module(module)
            return
        packages.add(package)
        start = line.now()
        try:
            self._loader.exec_module(module)
        finally:
            packages.discard(package)
            if line.now() - start >= MIN_NANOSECONDS:
                line.add("import", start, line.now(), module.__name__)
