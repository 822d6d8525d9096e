"""Progress line during long work, shown if stderr is a terminal, or by a display of the program's own.

It shows the phases of its thread's work (`core/events.py`). A thread has at most one, that of its innermost `shown`.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Protocol

from jitclient.core import events
from jitclient.core.notices import is_terminal
from jitclient.core.threads import Thread

PATIENCE_SECONDS = 0.5


class Display(Protocol):
    """Place for a progress line, made with its text."""

    def start(self) -> None:
        """Show the line."""

    def describe(self, text: str) -> None:
        """Show another text."""

    def stop(self) -> None:
        """Remove the line, if it is shown."""


_display: Callable[[str], Display] | None = None


def display_with(make: Callable[[str], Display] | None) -> None:
    """Show progress lines with what `make` returns for a text; with None, on the terminal again."""
    global _display
    _display = make


@contextlib.contextmanager
def shown(label: str, enabled: bool) -> Iterator[None]:
    """Show `compiling LABEL 3 s` after half a second. The phase that begins replaces the first word."""
    make = _display or (_Terminal if is_terminal() else None)
    if not enabled or make is None:
        with events.log.observed_by(alone=True):
            yield
        return
    line = _Line(label, make)
    with contextlib.suppress(RuntimeError):  # no thread is available
        Thread(line.wait, "progress").start()
    try:
        with events.log.observed_by(line.show_phase, alone=True):
            yield
    finally:
        line.stop()


class _Line:
    def __init__(self, label: str, make: Callable[[str], Display]) -> None:
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._label = label
        self._display = make(f"compiling {label}")

    def wait(self) -> None:
        """Start the progress line after a delay, unless the work has finished."""
        self._stopped.wait(PATIENCE_SECONDS)
        with self._lock:
            if not self._stopped.is_set():
                self._display.start()

    def show_phase(self, phase: str) -> None:
        self._display.describe(f"{phase} {self._label}")

    def stop(self) -> None:
        self._stopped.set()
        with self._lock:
            self._display.stop()


class _Terminal:
    def __init__(self, text: str) -> None:
        from rich import console, progress  # takes 40 ms, rarely needed

        self._progress = progress.Progress(
            progress.SpinnerColumn(),
            progress.TextColumn("{task.description}", markup=False),
            progress.TimeElapsedColumn(),
            console=console.Console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task(text, total=None)

    def start(self) -> None:
        self._progress.start()

    def describe(self, text: str) -> None:
        self._progress.update(self._task, description=text)

    def stop(self) -> None:
        self._progress.stop()
