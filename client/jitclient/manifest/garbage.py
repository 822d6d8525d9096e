"""Whether this thread collects garbage: what finalizers and callbacks read then is not read by the trace."""

import contextlib
import gc
import threading
from collections.abc import Iterator

_collecting: set[int] = set()
"""The threads that collect, as far as an observation notes it."""


def is_collected() -> bool:
    """Whether this thread collects garbage now."""
    return bool(_collecting) and threading.get_ident() in _collecting


@contextlib.contextmanager
def noted() -> Iterator[None]:
    """Note collections, before the first callback that hears of one and after the last."""

    def begins(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            _collecting.add(threading.get_ident())

    def ends(phase: str, info: dict[str, int]) -> None:
        if phase == "stop":
            _collecting.discard(threading.get_ident())

    gc.callbacks.insert(0, begins)
    gc.callbacks.append(ends)
    try:
        yield
    finally:
        for callback in (begins, ends):
            with contextlib.suppress(ValueError):  # the program has removed it
                gc.callbacks.remove(callback)
        _collecting.discard(threading.get_ident())
