"""Usage of the daemon by this process, and the work done locally instead, for the report at a program's exit."""

from collections import defaultdict
from typing import NamedTuple


class Got(NamedTuple):
    """Program that was got from a level: "memory" or "disk", or "made", or "remade" because `why`."""

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

    def add(self, got: Got, seconds: float) -> None:
        """Count a program that was got, and the seconds that this saved or took."""
        times, before = self.got[got]
        self.got[got] = times + 1, before + seconds

    def add_local(self, local: Local) -> None:
        """Count work that was done in this process."""
        self.local[local] += 1


usage = Usage()
"""Usage of the daemon by this process."""
