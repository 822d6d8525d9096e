"""Collects what captured code prints and warns of during a trace, and what compilations warn of.

Each process prints it, and warns of it, where it would have traced the function. A failed trace is repeated in the
client, which prints it again.
"""

import contextlib
import functools
import io
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from jitclient.codec import values
from jitclient.errors import CaptureError
from jitclient.wire.messages import Warned
from jitserver.traces.stand_ins import put

_MOST = 1 << 20
_OWN_CACHE = "persistent compilation cache entry"
"""In JAX's warnings of a failing disk, which do not concern clients."""


class _Here(threading.local):
    printed: list[tuple[str, str]] | None = None
    warned: dict[Warned, None] | None = None


_here = _Here()


class _Held(io.TextIOBase):
    """A standard stream that holds back the text of tracing threads."""

    def __init__(self, name: str, real: TextIO) -> None:
        self._name = name
        self._real = real

    def write(self, text: str) -> int:
        if _here.printed is None:
            return self._real.write(text)
        _here.printed.append((self._name, text))
        return len(text)

    def flush(self) -> None:
        self._real.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def watch() -> None:
    """Replaces the standard streams, and enables all warnings, for `printed` and `warned`. Once per process."""
    for name in ("stdout", "stderr"):
        put(sys, name, functools.partial(_Held, name))
    warnings.simplefilter("always")
    put(warnings, "showwarning", _telling)


def _telling(show: Callable[..., None]) -> Callable[..., None]:
    def told(message: Warning | str, category: type[Warning], *where: Any) -> None:
        if _here.warned is None or _OWN_CACHE in str(message):
            show(message, category, *where)
        else:
            _here.warned[Warned(_named(category), str(message))] = None

    return told


def _named(category: type[Warning]) -> bytes:
    try:
        return values.encode(category)
    except CaptureError:  # a class of user code
        return values.encode(UserWarning)


@contextlib.contextmanager
def printed() -> Iterator[list[tuple[str, str]]]:
    """Holds back what this thread prints until the end. Yields it: names of streams, and texts; too much is refused."""
    before, _here.printed = _here.printed, []
    try:
        yield _here.printed
        if sum(len(text) for _, text in _here.printed) > _MOST:
            raise CaptureError(f"it prints more than {_MOST:,} characters while it is traced")
    finally:
        _here.printed = before


@contextlib.contextmanager
def warned() -> Iterator[dict[Warned, None]]:
    """Collects the warnings of this thread until the end, each once."""
    before, _here.warned = _here.warned, {}
    try:
        yield _here.warned
    finally:
        _here.warned = before
