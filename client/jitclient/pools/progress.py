"""Progress bar of a map, on a terminal only."""

import contextlib
from typing import Protocol

from jitclient.core.notices import is_terminal
from jitclient.core.settings import report


class Bar(Protocol):
    """Bar of the finished calls."""

    def show(self, finished: int) -> None:
        """Show that so many calls have finished."""
        ...

    def close(self) -> None:
        """Remove the bar."""
        ...


class _NoBar:
    def show(self, finished: int) -> None:
        pass

    def close(self) -> None:
        pass


class _Shown:
    def __init__(self, name: str, total: int | None) -> None:
        from rich import console, progress  # takes 40 ms, rarely needed

        self._progress = progress.Progress(
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(),
            console=console.Console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task(name, total=total)
        with contextlib.suppress(Exception):
            self._progress.start()

    def show(self, finished: int) -> None:
        # The terminal may be gone, which is no concern of the tasks.
        with contextlib.suppress(Exception):
            self._progress.update(self._task, completed=finished)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._progress.stop()


def bar(name: str, total: int | None) -> Bar:
    """Return a bar for calls of the function `name`, which is invisible unless stderr is a terminal."""
    return _Shown(name, total) if report() != "off" and is_terminal() else _NoBar()
