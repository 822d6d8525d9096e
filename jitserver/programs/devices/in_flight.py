"""Programs that may still be computing after their calls returned, on backends that dispatch asynchronously.

The crash journal holds each of them until its results are ready, so that a later crash is attributed to them as well.
All of them are then suspects. A suspect runs alone, that is, after the programs in flight have finished and not at the
same time as another suspect, and its call returns when its results are ready. So the next crash has one suspect.

A launch costs a weak reference. Whether results are ready is asked later, by `forget_finished`.
"""

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax

from jitserver.programs.devices import device_arrays
from jitserver.programs.devices.stopwatch import Stopwatch, is_due
from jitserver.store.journal import Journal, SlotLease


class Launched(Protocol):
    """The part of a program that is needed here.

    Attributes:
        mark: slot content of the crash journal while the program runs.
        latest: reference to a result of the latest launch; None before the first one.
        is_in_flight: whether the journal holds the program.
        calls, device_seconds, queue_seconds, slowest: see `stopwatch.Timed`.
    """

    calls: int
    device_seconds: float
    queue_seconds: float
    slowest: float
    mark: bytes
    latest: Callable[[], Any] | None
    is_in_flight: bool


class InFlight:
    """The programs of this daemon that may still be computing. Thread-safe."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._programs: dict[int, tuple[Launched, SlotLease]] = {}
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._stopwatch = Stopwatch()

    def note(self, program: Launched, results: Sequence[Any], launched: float) -> None:
        """Record a launch that began at the time `launched`. A program without results counts as finished soon."""
        if is_due(program) and results:
            self._stopwatch.measure_later(program, results[0], self._latest(), launched)
        program.latest = weakref.ref(results[0]) if results else None
        # Read after `latest` was set: `forget_finished` does both in the opposite order, so that no launch is missed.
        if not program.is_in_flight:
            self._add(program)

    def forget_finished(self) -> None:
        """Remove the programs whose latest results are ready, were donated, or are not needed any more."""
        for number, noted in dict(self._programs).items():
            program, lease = noted
            latest = program.latest
            if not _is_finished(latest):
                continue
            with self._lock:
                if self._programs.get(number) is not noted:  # another thread has just removed it
                    continue
                program.is_in_flight = False
                if program.latest is latest:
                    del self._programs[number]
                    lease.slot[0] = 0
                else:  # it was launched again
                    program.is_in_flight = True

    def run_alone(self, run: Callable[..., Any], *arguments: Any) -> Any:
        """Run a suspect, and return its results when they are ready."""
        with self._turn:
            self._wait()
            return jax.block_until_ready(run(*arguments))

    def _add(self, program: Launched) -> None:
        with self._lock:
            if id(program) not in self._programs:
                lease = self._journal.lease_slot()
                lease.slot[:] = program.mark
                self._programs[id(program)] = program, lease
            program.is_in_flight = True

    def _latest(self) -> list[Any]:
        """Return a result of the latest call of each program."""
        found = [program.latest and program.latest() for program, _ in list(self._programs.values())]
        return [result for result in found if result is not None]

    def _wait(self) -> None:
        for result in self._latest():
            try:
                jax.block_until_ready(result)
            except Exception:  # its owner gets the error
                pass
        self.forget_finished()


def _is_finished(latest: Callable[[], Any] | None) -> bool:
    result = latest and latest()
    if not isinstance(result, jax.Array):  # dropped, or of a dtype without bytes
        return True
    try:
        return device_arrays.is_ready(result)
    except RuntimeError:  # it was donated meanwhile
        return True
