"""What the daemon counts since it started. `jitserver status` shows these."""

import dataclasses
import threading


@dataclasses.dataclass
class Counters:
    """Counted in one place each, so that a number means what it says."""

    calls: int = 0  # programs run
    hits: int = 0  # programs asked for and found: nothing was loaded, traced or compiled
    misses: int = 0  # programs asked for and made
    restores: int = 0  # programs loaded from the disk
    traces: int = 0
    compiles: int = 0
    text_hits: int = 0  # of these, found on the disk by the text of the program
    captures_loaded: int = 0  # times user code was unpickled
    client_traces: int = 0  # as clients report them
    local_runs: int = 0
    compile_seconds: float = 0.0  # loading, tracing, lowering and compiling
    compile_seconds_saved: float = 0.0  # the same, of programs that were found

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def add(self, **amounts: float) -> None:
        """Adds to several counters at once."""
        with self._lock:
            for name, amount in amounts.items():
                setattr(self, name, getattr(self, name) + amount)
