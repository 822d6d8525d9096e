"""Holds what captured code prints during a trace, and writes it to the daemon's log when the trace has succeeded.

A failed trace is repeated in the client, which prints it again.
"""

import contextlib
import io
import sys
import threading
from collections.abc import Iterator
from typing import Any, TextIO

_here = threading.local()


class _Held(io.TextIOBase):
    """A standard stream that holds back the text of tracing threads."""

    def __init__(self, real: TextIO) -> None:
        self._real = real

    def write(self, text: str) -> int:
        held: list[tuple[TextIO, str]] | None = getattr(_here, "held", None)
        if held is None:
            return self._real.write(text)
        held.append((self._real, text))
        return len(text)

    def flush(self) -> None:
        self._real.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def watch() -> None:
    """Replace the standard streams by such that can hold text back. Once per process."""
    sys.stdout, sys.stderr = _Held(sys.stdout), _Held(sys.stderr)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Hold what this thread prints until the end, and drop it if an exception is raised."""
    before, _here.held = getattr(_here, "held", None), []
    try:
        yield
        written = _here.held
    finally:
        _here.held = before
    for stream, text in written:
        stream.write(text)
