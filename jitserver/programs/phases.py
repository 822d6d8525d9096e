"""Phases of this thread's work on a request for a program, each of which lasts until the next one begins.

A thread works on one request at a time, so no function passes on where its phases are reported.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from jitclient.wire.messages import Phase


class _Listeners(threading.local):
    functions: tuple[Callable[[str], None], ...] = ()


_here = _Listeners()


def begin(phase: str) -> None:
    """Begin a phase, and report it, to the innermost function first."""
    for function in reversed(_here.functions):
        function(phase)


@contextlib.contextmanager
def reported_to(*functions: Callable[[str], None]) -> Iterator[None]:
    """Report each phase that begins in the `with` block to functions, to the last one first."""
    before, _here.functions = _here.functions, (*_here.functions, *functions)
    try:
        yield
    finally:
        _here.functions = before


class Phases:
    """Record of the phases of one request, which the client draws in the report of its run."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began = clock()
        self._begun: list[tuple[str, float]] = []

    def add(self, phase: str) -> None:
        """Record that a phase begins."""
        self._begun.append((phase, self._clock() - self._began))

    def until_now(self, first: str) -> tuple[Phase, ...]:
        """Return the phases. `first` is the name of the time before the first one that was recorded."""
        begun = [(first, 0.0), *self._begun]
        ends = [start for _, start in begun[1:]] + [self._clock() - self._began]
        return tuple(Phase(name, start, end - start) for (name, start), end in zip(begun, ends, strict=True))
