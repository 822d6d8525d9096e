"""A line below the cell while the daemon compiles for it."""

import html
import threading
import time

from IPython.display import HTML, DisplayHandle, display

from jitclient.core.threads import Thread

_PERIOD_SECONDS = 1.0


class ProgressDisplay:
    """Line that says what is done and for how long, and disappears at the end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._began = time.monotonic()
        self._handle: DisplayHandle | None = None
        self._stopped = threading.Event()
        self._lock = threading.Lock()

    def start(self) -> None:
        """Show the line."""
        self._handle = display(self._line(), display_id=True)
        Thread(self._refresh, "progress").start()

    def describe(self, text: str) -> None:
        """Show another text."""
        self._text = text

    def stop(self) -> None:
        """Remove the line, if it is shown."""
        with self._lock:
            self._stopped.set()
            if self._handle is not None:
                self._handle.update(HTML(""))

    def _refresh(self) -> None:
        assert self._handle is not None
        while not self._stopped.wait(_PERIOD_SECONDS):
            with self._lock:  # the line must not return after it was removed
                if not self._stopped.is_set():
                    self._handle.update(self._line())

    def _line(self) -> HTML:
        seconds = time.monotonic() - self._began
        return HTML(f"<progress></progress> <code>{html.escape(self._text)}</code> {seconds:.0f} s")
