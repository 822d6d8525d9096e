"""Counters of the daemon's work since its start, as `jitserver status` shows them."""

import dataclasses
import threading
from collections.abc import Iterable
from typing import Protocol


class Counted(Protocol):
    """An object with a number of calls and their durations in seconds."""

    calls: int
    call_seconds: float


class TimedProgram(Counted, Protocol):
    """A program: its longest call, what the next call is expected to wait for the device, and what all have waited."""

    slowest: float
    queue_seconds: float
    queued_seconds: float


@dataclasses.dataclass
class Counters:
    """The counters of one daemon. Each counter is increased in one place of the code only."""

    calls: int = 0  # programs run, or about to run
    hits: int = 0  # requested programs that needed no loading, tracing or compilation
    misses: int = 0  # requested programs that were made
    restores: int = 0  # programs loaded from disk
    dry_runs: int = 0  # restored programs run on zeros before their first call
    traces: int = 0
    compiles: int = 0
    text_hits: int = 0  # compilations found in JAX's own cache by program text
    captures_loaded: int = 0  # number of times that user code was unpickled
    client_traces: int = 0  # reported by clients, as is the next counter
    local_runs: int = 0
    compile_seconds: float = 0.0  # for loading, tracing, lowering and compiling
    compile_seconds_saved: float = 0.0  # the same for programs that were found

    def __post_init__(self) -> None:
        self.lock = threading.Lock()

    def add_run(self, session: Counted, ran: Iterable[tuple[TimedProgram, float]]) -> None:
        """Count the calls of one Run message.

        Args:
            session: the session that made the calls.
            ran: the programs, each with its duration in seconds.
        """
        with self.lock:
            for program, seconds in ran:
                if seconds > program.slowest and program.calls:
                    program.slowest = seconds
                program.calls += 1
                program.call_seconds += seconds
                program.queued_seconds += program.queue_seconds
                session.calls += 1
                session.call_seconds += seconds

    def add(self, **amounts: float) -> None:
        """Increase several counters by the given amounts, under one lock."""
        with self.lock:
            for name, amount in amounts.items():
                setattr(self, name, getattr(self, name) + amount)
