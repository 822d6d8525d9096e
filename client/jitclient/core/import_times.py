"""Durations of a program's imports, for a report that draws its run."""

import contextlib
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager

from jitclient.core import events
from jitclient.core.module_bodies import BodiesWithin

MIN_NANOSECONDS = 1_000_000
"""Minimum duration of an import that is added."""


def observe() -> None:
    """Add the imports from now on, except those of Python's own modules, and of a package within itself."""
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


class _Running(threading.local):
    def __init__(self) -> None:
        self.packages = set[str]()


_running = _Running()


def _around(name: str) -> AbstractContextManager[None] | None:
    package = name.partition(".")[0]
    is_left_out = package in _running.packages or package in sys.stdlib_module_names
    return None if is_left_out or not events.log.is_asked else _timed(name, package)


@contextlib.contextmanager
def _timed(name: str, package: str) -> Iterator[None]:
    start = events.log.now()
    _running.packages.add(package)
    try:
        yield
    finally:
        _running.packages.discard(package)
        if events.log.now() - start >= MIN_NANOSECONDS:
            events.log.add("import", start, events.log.now(), name)


_finder = BodiesWithin(_around)
