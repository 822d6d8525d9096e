"""Limit on the memory of the large frames that a daemon is receiving, on all its connections together.

A frame takes as much as its peer has sent of it. Where memory is short, the slowest frame makes room: its connection is
closed, and its client reconnects and sends again. Frames that began less than a second ago are spared, so that a frame
waits for a second at most, and a client that sends without a pause is not disturbed.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import monotonic

log = logging.getLogger(__name__)

_SPARED_SECONDS = 1.0
"""Age up to which a frame does not make room for others."""


@dataclass(eq=False)
class _Frame:
    cut_off: Callable[[], None]
    began: float
    nbytes: int = 0


class FrameBudget:
    """The memory for frames that are arriving. Thread-safe.

    Args:
        max_bytes: the limit. The frame that has been arriving for longest may exceed it, so that not all wait.
        clock: the time in seconds.
    """

    def __init__(self, max_bytes: int = 128 << 20, clock: Callable[[], float] = monotonic) -> None:
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
            A function that reserves bytes for the next part of the frame, and waits while there are none. It raises
            EOFError if the frame has made room for others.
        """
        frame = _Frame(cut_off, self._clock())
        with self._changed:
            self._frames[frame] = None
        try:
            yield lambda nbytes: self._reserve(frame, nbytes)
        finally:
            self._release(frame)

    def _used_bytes(self) -> int:
        return sum(frame.nbytes for frame in self._frames)

    def _reserve(self, frame: _Frame, nbytes: int) -> None:
        with self._changed:
            while frame in self._frames and self._used_bytes() + nbytes > self._max_bytes:
                if frame is next(iter(self._frames)):
                    break
                if not self._cut_off_slowest(frame):
                    self._changed.wait(_SPARED_SECONDS)
            if frame not in self._frames:
                raise EOFError("the frame has made room for others")
            frame.nbytes += nbytes

    def _cut_off_slowest(self, asking: _Frame) -> bool:
        now = self._clock()
        ages = {frame: now - frame.began for frame in self._frames if frame is not asking and frame.nbytes}
        old = [frame for frame, age in ages.items() if age >= _SPARED_SECONDS]
        if not old:
            return False
        slowest = min(old, key=lambda frame: frame.nbytes / ages[frame])
        self._release(slowest)
        slowest.cut_off()
        log.warning(
            "connections: closed one that sent %d bytes of a frame in %.0f s, as others need the memory",
            slowest.nbytes,
            ages[slowest],
        )
        return True

    def _release(self, frame: _Frame) -> None:
        with self._changed:
            self._frames.pop(frame, None)
            self._changed.notify_all()
