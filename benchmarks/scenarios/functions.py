"""How cost grows with the functions that are cached: a hot call, and the first call of a fresh wrapper."""

import functools
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.crew import crew
from benchmarks.machine import free_share
from benchmarks.measure import Effort, per_call
from benchmarks.result import Row
from benchmarks.rivals import Caller, disk_cache, ours, plain_jax, tutorial
from benchmarks.worker import Once

_BUDGET_SECONDS = 400.0  # at each size, for each contender
_RIVALS_MOST = 1000  # a function that plain JAX has compiled takes it more than a megabyte
_LEAST_FREE = 0.25  # of the memory
_FIRST_CALLS = 5


def scaled(factor: float, x: Any) -> Any:
    """A tiny function; each factor makes a different program."""
    return x * factor


def many_functions(caller: Caller, count: int, budget: float, seconds: float) -> Once:
    """Makes functions until there are `count`, or time or memory is spent; samples go round among all of them."""
    made = _made_by(caller)
    x = np.ones(8, np.float32)
    before = time.perf_counter()
    while not made or (len(made) < count and time.perf_counter() - before < budget and free_share() > _LEAST_FREE):
        made.append(caller.jit(functools.partial(scaled, float(len(made)))))
        assert caller.look(made[-1](x))[0] == len(made) - 1, "a wrong answer"
    turns, numbers = itertools.cycle(made), itertools.cycle(range(len(made)))

    def once() -> dict[str, float]:
        fresh = [functools.partial(scaled, float(next(numbers))) for _ in range(_FIRST_CALLS)]
        before = time.perf_counter()
        for fun in fresh:
            caller.look(caller.jit(fun)(x))
        first = (time.perf_counter() - before) / len(fresh)
        return {"hot": per_call(lambda: caller.look(next(turns)(x)), seconds), "first": first, "count": len(made)}

    return once


def rows(effort: Effort) -> Iterator[Row]:
    """From 10 to 10,000 cached functions, the last without rivals."""
    budget = _BUDGET_SECONDS
    with crew((ours, plain_jax, disk_cache, tutorial)) as contenders:
        for count in effort.sizes(10, 100, 1000, 10_000, quick=(2, 3)):
            samples = contenders.compare(
                f"{count:,} cached functions",
                many_functions,
                effort.rounds(7),
                only=[] if count <= _RIVALS_MOST else [ours.NAME],
                count=count,
                budget=budget,
                seconds=effort.seconds(0.1),
            )
            reached = {name: min(sample["count"] for sample in taken) for name, taken in samples.taken.items()}
            short = [f"{name} {most:,}" for name, most in reached.items() if most < count]
            note = f"made before {budget:.0f} s or the memory were spent: {', '.join(short)}" if short else ""
            for which, what in (("hot", "call of one"), ("first", "first call of a fresh wrapper")):
                picked = samples.of(lambda sample, which=which: sample[which])
                yield Row(f"{count:,} cached functions: {what}", picked, at=count, note=note)


@functools.cache
def _made_by(caller: Caller) -> list[Callable[..., Any]]:
    """Return the functions that a client has made so far: the next size adds to them."""
    return []
