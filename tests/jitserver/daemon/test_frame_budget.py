"""Large frames that arrive at the same time: which wait for memory, and which are given up for others."""

import contextlib
import threading
from collections.abc import Callable, Iterator

import pytest

from jitserver.daemon.frame_budget import FrameBudget


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Frames:
    """Frames that share ten bytes."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self.clock = Clock()
        self.budget = FrameBudget(10, self.clock)
        self.cut_off: list[str] = []
        self._stack = stack

    def begin(self, name: str) -> Callable[[int], None]:
        return self._stack.enter_context(self.budget.frame(lambda: self.cut_off.append(name)))


@pytest.fixture
def frames() -> Iterator[Frames]:
    with contextlib.ExitStack() as stack:
        yield Frames(stack)


def test_a_frame_that_ends_or_fails_frees_its_memory(frames: Frames) -> None:
    with frames.budget.frame(list) as reserve:
        reserve(4)
        reserve(5)
    with contextlib.suppress(EOFError), frames.budget.frame(list) as reserve:
        reserve(10)
        raise EOFError
    first, second = frames.begin("first"), frames.begin("second")
    first(4)
    second(6)
    assert frames.cut_off == []


def test_the_slowest_frame_makes_room(frames: Frames) -> None:
    slowest, fastest, other = map(frames.begin, ("slowest", "fastest", "other"))
    fastest(1)
    slowest(2)
    frames.clock.now += 5
    other(3)
    fastest(4)
    late = frames.begin("late")
    late(2)
    assert frames.cut_off == ["slowest"]
    with pytest.raises(EOFError, match="made room for others"):
        slowest(1)
    late(3)
    assert frames.cut_off == ["slowest", "other"]


def test_no_frame_is_cut_off_while_there_is_room(frames: Frames) -> None:
    first, second = frames.begin("first"), frames.begin("second")
    first(5)
    frames.clock.now += 1000
    second(5)
    first(0)
    assert frames.cut_off == []


def test_many_frames_that_wait_for_memory_leave_it_to_one_that_does_not(frames: Frames) -> None:
    """Each holds a part, and needs another, which the peer never completes."""
    waiting = [frames.begin(f"waiting {number}") for number in range(10)]
    for reserve in waiting:
        reserve(1)
    frames.clock.now += 1
    healthy = frames.begin("healthy")
    for _ in range(8):
        healthy(1)
    assert len(frames.cut_off) == 8
    assert "healthy" not in frames.cut_off


def test_the_first_frame_does_not_wait_for_later_ones(frames: Frames) -> None:
    first, second, third = map(frames.begin, ("first", "second", "third"))
    first(5)
    second(5)
    first(5)
    assert frames.cut_off == []
    frames.clock.now += 1
    third(1)
    assert frames.cut_off == ["second", "first"], "what it took beyond the limit counts"


def test_a_frame_waits_for_others_that_arrive(frames: Frames) -> None:
    second = frames.begin("second")
    with frames.budget.frame(list) as third:
        second(5)
        third(5)
        waiting = threading.Thread(target=lambda: frames.begin("fourth")(5))
        waiting.start()
    waiting.join(60)
    assert not waiting.is_alive()
    assert frames.cut_off == []
