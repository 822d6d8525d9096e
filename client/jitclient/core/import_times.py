"""Durations of a program's imports, for a report that draws its run."""

import contextlib
import sys
import threading
from typing import Any

from jitclient.core import events

MIN_NANOSECONDS = 1_000_000
"""Minimum duration of an import that is added."""


def observe() -> None:
    """Add the imports from now on, except those of Python's own modules, and of a package within itself."""
    if not any(isinstance(finder, _ImportTimes) for finder in sys.meta_path):
        sys.meta_path.insert(0, _ImportTimes())


class _ImportTimes(threading.local):
    """Import finder that finds what the others find, and times how long the modules run."""

    def __init__(self) -> None:
        self._asking = ""
        self._running = set[str]()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        package = name.partition(".")[0]
        is_left_out = package in self._running or package in sys.stdlib_module_names
        # Another finder may ask all the others in turn.
        if is_left_out or not events.log.is_asked or self._asking == name:
            return None
        asking, self._asking = self._asking, name
        try:
            finds = (getattr(finder, "find_spec", None) for finder in list(sys.meta_path) if finder is not self)
            spec = next(filter(None, (find(name, path, target) for find in finds if find)), None)
        finally:
            self._asking = asking
        loader: Any = getattr(spec, "loader", None)
        before = getattr(loader, "__dict__", {}).get("exec_module")
        is_timed = getattr(before, "__module__", "") == __name__
        if hasattr(loader, "exec_module") and not (isinstance(loader, type) or is_timed):
            # A loader without attributes of its own is not timed.
            with contextlib.suppress(AttributeError, TypeError):
                loader.exec_module = lambda module: self._run(loader, before, module)
        return spec

    def _run(self, loader: Any, before: Any, module: Any) -> None:
        # From now on, the loader is as without this module.
        vars(loader).pop("exec_module", None)
        if before is not None:
            loader.exec_module = before
        package, start = module.__name__.partition(".")[0], events.log.now()
        self._running.add(package)
        try:
            loader.exec_module(module)
        finally:
            self._running.discard(package)
            if events.log.now() - start >= MIN_NANOSECONDS:
                events.log.add("import", start, events.log.now(), module.__name__)
