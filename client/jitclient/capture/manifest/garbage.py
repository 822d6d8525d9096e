"""Threads that collect garbage: finalizers, which run at any time, are no part of the trace that they interrupt."""

import contextlib
import gc
import threading

_collecting: set[int] = set()
"""Ids of the threads that collect garbage, while a recorder listens."""


def collects_garbage() -> bool:
    """Return whether this thread collects garbage now."""
    return bool(_collecting) and threading.get_ident() in _collecting


class GarbageRecorder:
    """Recorder of when this thread collects garbage, callbacks of `gc` included.

    A collection may begin between any two lines of this class, and the program and other threads may change the list of
    callbacks meanwhile. A thread that counted as collecting for longer than it does would hide code from the
    observation of a trace, so the list of what the trace reads would be too short.
    """

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._is_open = False  # a collection has begun and not ended
        self._is_lost = False  # the end of a collection was not reported

    def start(self) -> None:
        """Start to listen: to the end of collections before their beginning."""
        gc.callbacks.append(self._end)
        gc.callbacks.insert(0, self._begin)

    def stop(self) -> str:
        """Stop to listen. Return the reason if code may have been taken for finalizers, else ""."""
        for callback in (self._begin, self._end):
            # The program may have removed it.
            with contextlib.suppress(ValueError):
                gc.callbacks.remove(callback)
        _collecting.discard(self._thread)
        return "the end of a collection of garbage was not reported" if self._is_open or self._is_lost else ""

    def _begin(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start" and threading.get_ident() == self._thread:
            self._is_lost |= self._is_open
            self._is_open = True
            _collecting.add(self._thread)

    def _end(self, phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and threading.get_ident() == self._thread:
            self._is_open = False
            _collecting.discard(self._thread)
