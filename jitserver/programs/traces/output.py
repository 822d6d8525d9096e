"""Suppression of output and warnings of captured code on the daemon: the caller's own trace has already shown them.

JAX's warnings about a failing disk concern the daemon itself, and go to its log.
"""

import functools
import io
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TextIO

from jitserver.programs.traces.stand_ins import replace

_DISK_WARNING = "persistent compilation cache entry"
"""Text in JAX's warnings about a failing disk, which do not concern clients."""


class _Withholding(threading.local):
    is_withheld = False


_thread_state = _Withholding()


class _Stream(io.TextIOBase):
    """A standard stream that discards the text of tracing threads."""

    def __init__(self, real: TextIO) -> None:
        self._real = real

    def write(self, text: str) -> int:
        return len(text) if _thread_state.is_withheld else self._real.write(text)

    def flush(self) -> None:
        self._real.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def watch() -> None:
    """Replace the standard streams, and the function that shows warnings. Call this function once per process."""
    for name in ("stdout", "stderr"):
        replace(sys, name, _Stream)
    replace(warnings, "showwarning", lambda show: functools.partial(_show, show))


def _show(show: Callable[..., None], message: Warning | str, *rest: Any) -> None:
    if not _thread_state.is_withheld or _DISK_WARNING in str(message):
        with _withheld(False):  # the warning is written to the replaced stream
            show(message, *rest)


@contextmanager
def _withheld(is_withheld: bool) -> Iterator[None]:
    before, _thread_state.is_withheld = _thread_state.is_withheld, is_withheld
    try:
        yield
    finally:
        _thread_state.is_withheld = before


def withheld() -> AbstractContextManager[None]:
    """Return a context manager that withholds the output of this thread."""
    return _withheld(True)
