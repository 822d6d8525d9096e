"""Progress line on the terminal during long work, shown only if stderr is a terminal."""

import contextlib
import threading
from collections.abc import Callable, Iterator

from jitclient.core.notices import is_terminal
from jitclient.core.threads import Thread

PATIENCE_SECONDS = 0.5


@contextlib.contextmanager
def shown(label: str, enabled: bool) -> Iterator[Callable[[str], None]]:
    """Show `compiling LABEL 3 s` after half a second; yield a function that replaces the first word."""
    if not enabled or not is_terminal():
        yield lambda phase: None
        return
    line = _Line(label)
    with contextlib.suppress(RuntimeError):  # no thread is available
        Thread(line.wait, "progress").start()
    try:
        yield line.show_phase
    finally:
        line.stop()


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
