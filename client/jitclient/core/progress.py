"""Progress line on the terminal during long work, shown only if stderr is a terminal.

A thread that waits for the daemon has at most one line, that of its innermost `shown`, so no function passes it on.
"""

import contextlib
import threading
from collections.abc import Iterator

from jitclient.core.notices import is_terminal
from jitclient.core.threads import Thread

PATIENCE_SECONDS = 0.5


class _Here(threading.local):
    line: "_Line | None" = None


_here = _Here()


@contextlib.contextmanager
def shown(label: str, enabled: bool) -> Iterator[None]:
    """Show `compiling LABEL 3 s` after half a second. `report_phase` replaces the first word."""
    line = _Line(label) if enabled and is_terminal() else None
    before, _here.line = _here.line, line
    if line is not None:
        with contextlib.suppress(RuntimeError):  # no thread is available
            Thread(line.wait, "progress").start()
    try:
        yield
    finally:
        _here.line = before
        if line is not None:
            line.stop()


def report_phase(phase: str) -> None:
    """Show the phase of the work for which this thread waits, if the thread has a line."""
    if _here.line is not None:
        _here.line.show_phase(phase)


class _Line:
    def __init__(self, label: str) -> None:
        from rich import console, progress  # takes 40 ms, rarely needed

        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._progress = progress.Progress(
            progress.SpinnerColumn(),
            progress.TextColumn("{task.description}", markup=False),
            progress.TimeElapsedColumn(),
            console=console.Console(stderr=True),
            transient=True,
        )
        self._label = label
        self._task = self._progress.add_task(f"compiling {label}", total=None)

    def wait(self) -> None:
        """Start the progress line after a delay, unless the work has finished."""
        self._stopped.wait(PATIENCE_SECONDS)
        with self._lock:
            if not self._stopped.is_set():
                self._progress.start()

    def show_phase(self, phase: str) -> None:
        self._progress.update(self._task, description=f"{phase} {self._label}")

    def stop(self) -> None:
        self._stopped.set()
        with self._lock:
            self._progress.stop()
