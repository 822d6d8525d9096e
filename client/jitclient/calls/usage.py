"""What this process used of the daemon, and what it did itself instead: for the report at the end of a program."""

from collections import defaultdict
from typing import NamedTuple


class Got(NamedTuple):
    """A program that was got from a level: "memory" or "disk", or "made"."""

    program: str
    level: str


class Local(NamedTuple):
    """A function that was "traced" or "run" in this process, and the reason."""

    function: str
    what: str
    why: str


class Usage:
    """Counts since the process began."""

    def __init__(self) -> None:
        # How often each program was got from each level, and the seconds that this saved or, for one made, took.
        self.got: defaultdict[Got, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
        self.local: defaultdict[Local, int] = defaultdict(int)

    def add(self, got: Got, seconds: float) -> None:
        """Count a program."""
        times, before = self.got[got]
        self.got[got] = times + 1, before + seconds

    def add_local(self, local: Local) -> None:
        """Count what was done in this process."""
        self.local[local] += 1


usage = Usage()
"""That of this process."""
