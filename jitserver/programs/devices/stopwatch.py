"""Measurement of the time that a device works for a call, where calls return before they are computed.

The time begins when the device has finished the earlier work, and ends when a result is ready. A thread waits for both,
for one call at a time. Most calls are not measured, and cost a comparison of numbers.
"""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax

_EVERY = 64


class Timed(Protocol):
    """The part of a program that is needed here.

    Attributes:
        calls: the number of earlier calls.
        device_seconds: the latest measurement; zero before the first one.
        queue_seconds: the time from that call's launch until the device had finished the earlier work.
        slowest: the longest measurement.
    """

    calls: int
    device_seconds: float
    queue_seconds: float
    slowest: float


def is_due(program: Timed) -> bool:
    """Return whether to measure the next call: the second one, since the first one takes longer, and then one in 64."""
    return program.calls % _EVERY == 1


class Stopwatch:
    """The thread that waits for the results of the call that is being measured, if there is one."""

    def __init__(
        self,
        wait: Callable[[Any], object] = jax.block_until_ready,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wait, self._clock = wait, clock
        self._is_busy = False
        self._launches: queue.SimpleQueue[tuple[Timed, Any, Sequence[Any], float]] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="jitserver-stopwatch", daemon=True).start()

    def measure_later(self, program: Timed, result: Any, earlier: Sequence[Any], launched: float) -> None:
        """Measure a call that was launched at a time by the clock, unless another one is being measured.

        Args:
            program: the program, which gets the measurement.
            result: a result of the call.
            earlier: results of the calls that may still be computing.
            launched: the beginning of the launch.
        """
        if not self._is_busy:
            self._is_busy = True
            self._launches.put((program, result, earlier, launched))

    def measure(self, program: Timed, result: Any, earlier: Sequence[Any], launched: float) -> None:
        """Wait for the results, and record the time between them. A call that fails is not measured."""
        for other in earlier:
            try:
                self._wait(other)
            except Exception:  # its owner gets the error
                continue
        begun = max(launched, self._clock()) if earlier else launched
        try:
            self._wait(result)
        except Exception:  # as above, or the result was donated meanwhile
            return
        program.device_seconds = self._clock() - begun
        program.queue_seconds = begun - launched
        program.slowest = max(program.slowest, program.device_seconds)

    def _serve(self) -> None:
        while True:
            self.measure(*self._launches.get())
            self._is_busy = False
