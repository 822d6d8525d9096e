"""A progress line on the terminal during long work; nothing if stderr is not a terminal."""

import contextlib
import threading
from collections.abc import Callable, Iterator

from jitclient.notices.stderr import is_terminal

PATIENCE_SECONDS = 0.5


@contextlib.contextmanager
def shown(label: str, enabled: bool) -> Iterator[Callable[[str], None]]:
    """Shows `compiling LABEL 3 s` after half a second; yields a function that changes the first word."""
    if not enabled or not is_terminal():
        yield lambda phase: None
        return
    line = _Line(label)
    timer = threading.Timer(PATIENCE_SECONDS, line.start)
    timer.daemon = True
    with contextlib.suppress(RuntimeError):  # no thread is available
        timer.start()
    try:
        yield line.say
    finally:
        timer.cancel()
        line.stop()


class _Line:
    def __init__(self, label: str) -> None:
        from rich import console, progress  # takes 40 ms, and most calls do not need it

        self._lock = threading.Lock()
        self._stopped = False
        self._progress = progress.Progress(
            progress.SpinnerColumn(),
            progress.TextColumn("{task.description}", markup=False),
            progress.TimeElapsedColumn(),
            console=console.Console(stderr=True),
            transient=True,
        )
        self._label = label
        self._task = self._progress.add_task(f"compiling {label}", total=None)

    def start(self) -> None:
        with self._lock:
            if not self._stopped:
                self._progress.start()

    def say(self, phase: str) -> None:
        self._progress.update(self._task, description=f"{phase} {self._label}")

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            self._progress.stop()
