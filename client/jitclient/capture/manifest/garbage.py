"""Which thread collects garbage: finalizers, which run at any time, are no part of the trace that they interrupt.

Two callbacks of `gc` say so, the first and the last of all. They are installed once and stay, because Python skips a
callback or calls it twice if another thread changes the list while it calls them. This may happen once when they are
installed again, because a package has put its callback before or behind them: then a trace counts as unobserved.
"""

import contextlib
import gc
import os
import threading
from collections.abc import Callable

_collector: int | None = None
"""The thread that collects garbage now. There is never more than one."""

_lost: dict[int, int] = {}
"""The number of collections whose end was not reported, by thread."""

_installing = threading.RLock()  # a signal handler may trace, too


def _after_fork() -> None:
    global _installing
    _installing = threading.RLock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_after_fork)


def collects_garbage() -> bool:
    """Return whether this thread collects garbage now, or runs callbacks of `gc`."""
    return _collector is not None and _collector == threading.get_ident()


class GarbageRecorder:
    """Recorder of whether the beginning and the end of each collection are reported.

    A thread that counted as collecting for longer than it does would hide code from the observation of a trace, so the
    list of what the trace reads would be too short. Programs may change the list of callbacks at any time.
    """

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._lost_before = _lost.get(self._thread)

    def start(self) -> None:
        """Start to listen."""
        _install()
        if collects_garbage():  # or the end of a collection was lost before this trace
            _count_lost(self._thread)
        self._lost_before = _lost.get(self._thread)

    def stop(self) -> str:
        """Stop to listen. Return the reason if code may have been taken for finalizers, else ""."""
        if collects_garbage():
            _count_lost(self._thread)
        is_lost = _lost.get(self._thread) != self._lost_before
        return "the end of a collection of garbage was not reported" if is_lost else ""


def _install() -> None:
    with _installing:
        if not gc.callbacks or gc.callbacks[0] is not _begin:
            _remove(_begin)
            gc.callbacks.insert(0, _begin)
        if gc.callbacks[-1] is not _end:
            _remove(_end)
            gc.callbacks.append(_end)


def _remove(callback: Callable[[str, dict[str, int]], None]) -> None:
    """Remove a callback, which is there twice if a signal handler installed it in the middle of `_install`."""
    with contextlib.suppress(ValueError):
        while True:
            gc.callbacks.remove(callback)


def _begin(phase: str, info: dict[str, int]) -> None:
    global _collector
    if phase == "start":
        if _collector is not None:
            _count_lost(_collector)
        _collector = threading.get_ident()


def _end(phase: str, info: dict[str, int]) -> None:
    global _collector
    if phase == "stop":
        _collector = None


def _count_lost(thread: int) -> None:
    global _collector
    _lost[thread] = _lost.get(thread, 0) + 1
    _collector = None
