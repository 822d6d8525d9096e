"""Limit on the memory of the large frames that a daemon is receiving, on all its connections together.

A frame takes as much as its peer has sent of it. Where memory is short, the later frames wait until earlier ones have
arrived, except for those whose peers pause: their connections are closed. Their clients reconnect and send again.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import monotonic

from jitclient.wire.messages import MAX_FRAME_BYTES

log = logging.getLogger(__name__)

_PAUSE_SECONDS = 1.0
"""Seconds for the next part of a frame, after which its peer counts as one that pauses."""


@dataclass(eq=False)
class _Frame:
    cut_off: Callable[[], None]
    nbytes: int = 0
    awaited_since: float | None = None  # None while the frame waits for memory, not for its peer


class FrameBudget:
    """The memory for frames that are arriving. Thread-safe.

    Args:
        max_bytes: the limit. The frame that has been arriving for longest may exceed it, so that not all wait.
        clock: the time in seconds.
    """

    def __init__(self, max_bytes: int = 8 * MAX_FRAME_BYTES, clock: Callable[[], float] = monotonic) -> None:
        self._max_bytes = max_bytes
        self._clock = clock
        self._frames: dict[_Frame, None] = {}  # in the order in which they began
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def frame(self, cut_off: Callable[[], None]) -> Iterator[Callable[[int], None]]:
        """Reserve memory in the context for a frame.

        Args:
            cut_off: closes the frame's connection; another thread may call it.

        Yields:
            A function that reserves bytes for the next part of the frame, and waits while there are none.
        """
        frame = _Frame(cut_off)
        with self._changed:
            self._frames[frame] = None
        try:
            yield lambda nbytes: self._reserve(frame, nbytes)
        finally:
            self._release(frame)

    def used_bytes(self) -> int:
        """Return the bytes that are reserved now."""
        return sum(frame.nbytes for frame in list(self._frames))

    def _reserve(self, frame: _Frame, nbytes: int) -> None:
        with self._changed:
            frame.awaited_since = None
            while self.used_bytes() + nbytes > self._max_bytes:
                if self._cut_off_pausing():
                    continue
                if frame is next(iter(self._frames)):
                    break
                self._changed.wait(_PAUSE_SECONDS)
            frame.nbytes += nbytes
            frame.awaited_since = self._clock()

    def _cut_off_pausing(self) -> bool:
        limit = self._clock() - _PAUSE_SECONDS
        pausing = [frame for frame in self._frames if frame.awaited_since is not None and frame.awaited_since <= limit]
        for frame in pausing:
            frame.cut_off()
            self._release(frame)
        if pausing:
            log.warning("connections: closed %d that paused within a frame, as others need the memory", len(pausing))
        return bool(pausing)

    def _release(self, frame: _Frame) -> None:
        with self._changed:
            self._frames.pop(frame, None)
            self._changed.notify_all()
