"""Phases of the daemon's work on one request for a program, which the client draws in the report of its run."""

import time
from collections.abc import Callable

from jitclient.wire.messages import Phase


class Phases:
    """Record of the phases that a request reports, each of which lasts until the next one begins."""

    def __init__(self, report_phase: Callable[[str], None], clock: Callable[[], float] = time.perf_counter) -> None:
        self._report_phase = report_phase
        self._clock = clock
        self._began = clock()
        self._begun: list[tuple[str, float]] = []

    def report(self, phase: str) -> None:
        """Report that a phase begins."""
        self._begun.append((phase, self._clock() - self._began))
        self._report_phase(phase)

    def until_now(self, first: str) -> tuple[Phase, ...]:
        """Return the phases. `first` is the name of the time before the first one that was reported."""
        begun = [(first, 0.0), *self._begun]
        ends = [start for _, start in begun[1:]] + [self._clock() - self._began]
        return tuple(Phase(name, start, end - start) for (name, start), end in zip(begun, ends, strict=True))
