"""What captured code prints while it is traced: the daemon's log has it once the trace succeeded.

A trace that fails is repeated in its caller's process, which prints it all again.
"""

import contextlib
import io
import sys
import threading
from collections.abc import Iterator
from typing import Any, TextIO

from jitserver.engine.stand_ins import put

_here = threading.local()


class _Held(io.TextIOBase):
    """A stream of the process, or what holds the text of a thread that is tracing something."""

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
    """Put what can hold text in place of this process's standard streams. Once per process."""
    for name in ("stdout", "stderr"):
        put(sys, name, _Held)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Hold what this thread prints until the end, and drop it if that is an exception."""
    before, _here.held = getattr(_here, "held", None), []
    try:
        yield
        written = _here.held
    finally:
        _here.held = before
    for stream, text in written:
        stream.write(text)
