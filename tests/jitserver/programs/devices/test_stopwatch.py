"""The time that a device works for a call: when it begins and ends, and which calls are measured."""

import queue
import threading
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import pytest

from jitserver.programs.devices import in_flight as module
from jitserver.programs.devices.in_flight import InFlight
from jitserver.programs.devices.stopwatch import Stopwatch, is_due
from jitserver.store.journal import EMPTY_SLOT, Journal


def program(calls: int = 1) -> Any:
    return SimpleNamespace(
        calls=calls,
        device_seconds=0.0,
        queue_seconds=0.0,
        slowest=0.0,
        mark=EMPTY_SLOT,
        latest=None,
        is_in_flight=False,
    )


@pytest.mark.parametrize(("earlier", "queued", "seconds"), [([], 0.0, 8.0), (["other", "another"], 5.0, 3.0)])
def test_the_time_begins_when_the_earlier_work_is_done(earlier: list[str], queued: float, seconds: float) -> None:
    waited: list[str] = []
    done = {"other": 12.0, "another": 15.0, "result": 18.0}
    measured = program()
    stopwatch = Stopwatch(waited.append, lambda: done[waited[-1]])
    stopwatch.measure(measured, "result", earlier, 10.0)
    assert waited == [*earlier, "result"]
    assert (measured.queue_seconds, measured.device_seconds, measured.slowest) == (queued, seconds, seconds)


def test_a_call_that_fails_is_not_measured() -> None:
    def wait(result: Any) -> None:
        raise RuntimeError(f"{result} was donated")

    measured = program()
    Stopwatch(wait).measure(measured, "result", ["other"], 10.0)
    assert measured.device_seconds == 0


def test_one_call_is_measured_at_a_time(until: Any) -> None:
    begun, may_end = queue.SimpleQueue[Any](), threading.Semaphore(0)

    def wait(result: Any) -> None:
        begun.put(result)
        may_end.acquire()

    stopwatch = Stopwatch(wait, lambda: 18.0)
    stopwatch.measure_later(program(), "first", [], 0.0)
    assert begun.get() == "first"
    stopwatch.measure_later(program(), "ignored", [], 0.0)
    may_end.release(3)
    until(lambda: not stopwatch._is_busy, "the measurement to end")
    stopwatch.measure_later(program(), "next", [], 0.0)
    assert begun.get() == "next"


def test_few_calls_are_measured_and_the_others_in_flight_are_waited_for() -> None:
    assert [calls for calls in range(130) if is_due(program(calls))] == [1, 65, 129]
    in_flight, measured = InFlight(Journal()), list[Any]()
    in_flight._stopwatch = SimpleNamespace(measure_later=lambda *given: measured.append(given))  # type: ignore[assignment]
    one, other, x, y = program(), program(), jnp.ones(1), jnp.ones(2)
    in_flight.note(one, [x], 1.0)
    in_flight.note(other, [y, x], 2.0)
    other.calls = 2
    in_flight.note(other, [y], 3.0)
    assert [(found[0] is one, found[1] is x, found[2], found[3]) for found in measured] == [
        (True, True, [], 1.0),
        (False, False, [x], 2.0),
    ]


def test_two_threads_may_find_that_a_program_has_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    noted, finished = InFlight(Journal()), program(2)
    result = jnp.zeros(2).block_until_ready()
    noted.note(finished, [result], 0.0)
    is_finished = module._is_finished

    def other_is_first(latest: Any) -> bool:
        monkeypatch.setattr(module, "_is_finished", is_finished)
        noted.forget_finished()
        return is_finished(latest)

    monkeypatch.setattr(module, "_is_finished", other_is_first)
    noted.forget_finished()
    assert not finished.is_in_flight
    assert not noted._programs
