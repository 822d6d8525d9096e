"""What the daemon counts since it started. `jitserver status` shows these."""

import dataclasses
import threading
from collections.abc import Iterable
from typing import Protocol


class Counted(Protocol):
    """Has a number of calls."""

    calls: int


class Timed(Counted, Protocol):
    """Has the duration of its calls, too."""

    call_seconds: float
    slowest: float


@dataclasses.dataclass
class Counters:
    """Each counter is increased in one place only."""

    calls: int = 0  # programs run, or about to be
    hits: int = 0  # programs requested and found: nothing was loaded, traced or compiled
    misses: int = 0  # programs requested and made
    restores: int = 0  # programs loaded from the disk
    dry_runs: int = 0  # of these, run on zeros before their first call
    traces: int = 0
    compiles: int = 0
    text_hits: int = 0  # of these, found in JAX's own cache by the text of the program
    captures_loaded: int = 0  # times user code was unpickled
    client_traces: int = 0  # reported by clients, like the next
    local_runs: int = 0
    compile_seconds: float = 0.0  # loading, tracing, lowering and compiling
    compile_seconds_saved: float = 0.0  # the same for programs that were found

    def __post_init__(self) -> None:
        self.lock = threading.Lock()

    def add_run(self, session: Counted, ran: Iterable[tuple[Timed, float]]) -> None:
        """Adds the calls of one Run: programs, each with the seconds that it ran."""
        with self.lock:
            for program, seconds in ran:
                if seconds > program.slowest and program.calls:
                    program.slowest = seconds
                program.calls += 1
                program.call_seconds += seconds
                session.calls += 1

    def add(self, **amounts: float) -> None:
        """Increases several counters at once."""
        with self.lock:
            for name, amount in amounts.items():
                setattr(self, name, getattr(self, name) + amount)
