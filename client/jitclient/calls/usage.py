"""Usage of the daemon by this process, and the work done locally instead, for the report at a program's exit."""

from collections import defaultdict
from typing import NamedTuple

FOUND = ("memory", "disk", "share")
"""Levels at which programs are found."""


class Got(NamedTuple):
    """Program that was got from a level: "memory", "disk" or "share", or "made", or "remade" because `why`."""

    program: str
    level: str
    why: str = ""


class Local(NamedTuple):
    """Function that was "traced" or "run" in this process, and the reason."""

    function: str
    what: str
    why: str


class Usage:
    """Counts since the start of the process."""

    def __init__(self) -> None:
        # How often each program was got from each level, and the seconds that this saved or, for "made", took.
        self.got: defaultdict[Got, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
        self.local: defaultdict[Local, int] = defaultdict(int)
        self.saved_compiling = 0.0
        """Seconds of compiling that found programs saved, as JAX's own cache would."""

    def clear(self) -> None:
        """Forget all counts, those of the process that this one was forked from."""
        self.got.clear()
        self.local.clear()
        self.saved_compiling = 0.0

    def add(self, got: Got, seconds: float, saved_compiling: float = 0.0) -> None:
        """Count a program that was got, the seconds that this saved or took, and those of compiling that it saved."""
        self.saved_compiling += saved_compiling
        times, before = self.got[got]
        self.got[got] = times + 1, before + seconds

    def add_local(self, local: Local) -> None:
        """Count work that was done in this process."""
        self.local[local] += 1

    def total(self, *levels: str) -> tuple[int, float]:
        """Return how often programs were got from these levels, and the seconds that this saved or took."""
        counted = [count for got, count in dict(self.got).items() if got.level in levels]
        return sum(times for times, _ in counted), sum((seconds for _, seconds in counted), 0.0)


usage = Usage()
"""Usage of the daemon by this process."""
