"""Tasks on two worker processes of this machine: thousands of tiny ones, and some that take a while."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.crew import crew
from benchmarks.measure import Effort
from benchmarks.result import Row, Target
from benchmarks.rivals import Caller, dask_pool, executor_pool, joblib_pool, our_pool, ray_pool
from benchmarks.worker import Once

_POOLS = (our_pool, joblib_pool, ray_pool, dask_pool, executor_pool)
_TARGETS = (Target(1.1, times=dask_pool.NAME),)


def tiny(number: int) -> int:
    """A task that costs nothing."""
    return number + 1


def ten_milliseconds(number: int) -> int:
    """A task that computes for a while."""
    end = time.perf_counter() + 0.01
    while time.perf_counter() < end:
        pass
    return number + 1


def spread_out(caller: Caller, task: Callable[[int], int], count: int) -> Once:
    """The seconds of a map over so many numbers."""
    items, spread = list(range(count)), caller.spread
    assert spread is not None, "a contender is no pool"

    def once() -> Any:
        before = time.perf_counter()
        found = spread(task, items)
        seconds = time.perf_counter() - before
        assert found == list(range(1, count + 1)), "a wrong answer"
        return seconds

    return once


def rows(effort: Effort) -> Iterator[Row]:
    """The target is 1.1 times Dask, which the pool uses."""
    with crew(_POOLS) as contenders:
        for task, full in ((tiny, 10_000), (ten_milliseconds, 200)):
            count = effort.one(full, 20)
            text = f"{count} tasks: {task.__name__.replace('_', ' ')}"
            samples = contenders.compare(text, spread_out, effort.rounds(7), task=task, count=count)
            yield Row(text, samples, tuple(each for each in _TARGETS if each.times in contenders.workers), at=count)
