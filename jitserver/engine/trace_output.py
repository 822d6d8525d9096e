"""Collects what captured code prints during a trace: each process prints it where it would have traced the function.

A failed trace is repeated in the client, which prints it again.
"""

import contextlib
import functools
import io
import sys
import threading
from collections.abc import Iterator
from typing import Any, TextIO

from jitclient.errors import CaptureError
from jitserver.engine.stand_ins import put

_MOST = 1 << 20
_here = threading.local()


class _Held(io.TextIOBase):
    """A standard stream that holds back the text of tracing threads."""

    def __init__(self, name: str, real: TextIO) -> None:
        self._name = name
        self._real = real

    def write(self, text: str) -> int:
        held: list[tuple[str, str]] | None = getattr(_here, "held", None)
        if held is None:
            return self._real.write(text)
        held.append((self._name, text))
        return len(text)

    def flush(self) -> None:
        self._real.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def watch() -> None:
    """Replace the standard streams by such that can hold text back. Once per process."""
    for name in ("stdout", "stderr"):
        put(sys, name, functools.partial(_Held, name))


@contextlib.contextmanager
def held() -> Iterator[list[tuple[str, str]]]:
    """Hold back what this thread prints until the end. Yields it: names of streams, and texts.

    Raises:
        CaptureError: it is too much.
    """
    before, _here.held = getattr(_here, "held", None), []
    try:
        yield _here.held
        if sum(len(text) for _, text in _here.held) > _MOST:
            raise CaptureError(f"it prints more than {_MOST:,} characters while it is traced")
    finally:
        _here.held = before
