"""Which thread collects garbage: finalizers, which run at any time, are no part of the trace that they interrupt.

Two callbacks of `gc` say so, the first and the last of all. They are installed once and stay, because Python skips a
callback or calls it twice if another thread changes the list while it calls them.
"""

import contextlib
import gc
import threading
from collections.abc import Callable

_collector: int | None = None
"""The thread that collects garbage now. There is never more than one."""

_lost = 0
"""The number of collections whose end was not reported."""

_installing = threading.Lock()


def collects_garbage() -> bool:
    """Return whether this thread collects garbage now, or runs callbacks of `gc`."""
    return _collector is not None and _collector == threading.get_ident()


class GarbageRecorder:
    """Recorder of whether the beginning and the end of each collection are reported.

    A thread that counted as collecting for longer than it does would hide code from the observation of a trace, so the
    list of what the trace reads would be too short. Programs may change the list of callbacks at any time.
    """

    def __init__(self) -> None:
        self._lost_before = _lost

    def start(self) -> None:
        """Start to listen."""
        _install()
        self._lost_before = _lost

    def stop(self) -> str:
        """Stop to listen. Return the reason if code may have been taken for finalizers, else ""."""
        if collects_garbage():
            _count_lost()
        return "the end of a collection of garbage was not reported" if _lost != self._lost_before else ""


def _install() -> None:
    with _installing:
        if not gc.callbacks or gc.callbacks[0] is not _begin:
            _remove(_begin)
            gc.callbacks.insert(0, _begin)
        if gc.callbacks[-1] is not _end:
            _remove(_end)
            gc.callbacks.append(_end)


def _remove(callback: Callable[[str, dict[str, int]], None]) -> None:
    with contextlib.suppress(ValueError):
        gc.callbacks.remove(callback)


def _begin(phase: str, info: dict[str, int]) -> None:
    global _collector
    if phase == "start":
        if _collector is not None:
            _count_lost()
        _collector = threading.get_ident()


def _end(phase: str, info: dict[str, int]) -> None:
    global _collector
    if phase == "stop":
        _collector = None


def _count_lost() -> None:
    global _collector, _lost
    _lost += 1
    _collector = None
