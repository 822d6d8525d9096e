"""A capture stops when its budget is spent, and leaves nothing behind."""

import gc
import math
from typing import Any

import pytest

from jitclient.capture.budget import Budget
from jitclient.capture.dump import capture
from jitclient.errors import CaptureTooSlow


class Clock:
    """A clock that moves on by a second each time it is read."""

    def __init__(self) -> None:
        self.reads = 0

    def __call__(self) -> float:
        self.reads += 1
        return float(self.reads)


class Layer:
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __reduce__(self) -> Any:
        return Layer, (self.inner,), {"name": "layer"}


LAYERS = Layer(Layer(Layer({"gain": [2.0, 3.0]})))


def step(x: Any) -> Any:
    return x * len(vars(LAYERS))


def test_a_budget_counts_from_its_start() -> None:
    clock = Clock()
    budget = Budget(2.0, "the capture is slow", clock, every=1)
    budget.check()
    budget.check()
    with pytest.raises(CaptureTooSlow, match="the capture is slow"):
        budget.check()
    assert budget.spent() == 4.0


def test_steps_with_a_full_collection_of_garbage_do_not_count() -> None:
    made = [0, 0, 1, 1, 3, 3, 3]
    budget = Budget(2.0, "the capture is slow", Clock(), every=1, collections=lambda: made.pop(0))
    for _ in range(4):
        budget.check()
    with pytest.raises(CaptureTooSlow, match="the capture is slow"):
        budget.check()
    assert made == [3]


def test_a_full_collection_of_garbage_is_noticed() -> None:
    seconds = [0.0, 5.0, 6.0, 7.0]
    budget = Budget(0.5, "the capture is slow", lambda: seconds.pop(0), every=1)
    gc.collect()
    budget.check()
    gc.disable()
    try:
        with pytest.raises(CaptureTooSlow, match="the capture is slow"):
            budget.check()
    finally:
        gc.enable()


def test_the_clock_is_read_now_and_then() -> None:
    clock = Clock()
    budget = Budget(1.0, "the capture is slow", clock, every=5)
    for _ in range(9):
        budget.check()
    assert clock.reads == 2
    with pytest.raises(CaptureTooSlow):
        budget.check()


def test_a_capture_stops_at_any_step_and_the_next_one_has_the_same_bytes() -> None:
    whole = capture(step)
    clock = Clock()
    assert capture(step, budget=Budget(math.inf, "", clock, every=1)).payload == whole.payload
    steps = clock.reads - 1
    assert steps > 10
    for seconds in range(steps):
        with pytest.raises(CaptureTooSlow):
            capture(step, budget=Budget(seconds, "", Clock(), every=1))
        assert capture(step).payload == whole.payload
    assert capture(step, budget=Budget(steps, "", Clock(), every=1)).payload == whole.payload


def test_an_object_that_fails_does_not_hide_that_the_budget_is_spent() -> None:
    unusable = (number for number in range(3))

    def reads(x: Any) -> Any:
        return x, unusable, LAYERS

    with pytest.raises(CaptureTooSlow):
        capture(reads, budget=Budget(1.0, "", Clock(), every=1))
