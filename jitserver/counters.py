"""What the daemon counts since it started. `jitserver status` shows these."""

import dataclasses
import threading
from collections.abc import Iterable
from typing import Protocol


class Counted(Protocol):
    """Whose calls are counted."""

    calls: int


class Timed(Counted, Protocol):
    """Whose time is counted, too."""

    call_seconds: float
    slowest: float


@dataclasses.dataclass
class Counters:
    """Counted in one place each, so that a number means what it says."""

    calls: int = 0  # programs run, or about to be
    hits: int = 0  # programs asked for and found: nothing was loaded, traced or compiled
    misses: int = 0  # programs asked for and made
    restores: int = 0  # programs loaded from the disk
    dry_runs: int = 0  # of these, run on zeros before anybody called them
    traces: int = 0
    compiles: int = 0
    text_hits: int = 0  # of these, found on the disk by the text of the program
    captures_loaded: int = 0  # times user code was unpickled
    client_traces: int = 0  # as clients report them
    local_runs: int = 0
    compile_seconds: float = 0.0  # loading, tracing, lowering and compiling
    compile_seconds_saved: float = 0.0  # the same, of programs that were found

    def __post_init__(self) -> None:
        self.lock = threading.Lock()

    def add_run(self, session: Counted, ran: Iterable[tuple[Timed, float]]) -> None:
        """Adds the calls of one Run of a session: programs, each with the seconds that it ran for."""
        with self.lock:
            for program, seconds in ran:
                if seconds > program.slowest and program.calls:
                    program.slowest = seconds
                program.calls += 1
                program.call_seconds += seconds
                session.calls += 1

    def add(self, **amounts: float) -> None:
        """Adds to several counters at once."""
        with self.lock:
            for name, amount in amounts.items():
                setattr(self, name, getattr(self, name) + amount)
