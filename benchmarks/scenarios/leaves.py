"""How the cost of a call grows with the leaves of its argument: numpy in and numpy out, the answer waited for."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.crew import crew
from benchmarks.measure import Effort, per_call
from benchmarks.result import Row
from benchmarks.rivals import Caller, bare_socket, ours, plain_jax, tutorial
from benchmarks.worker import Once


def sum_of(xs: list[Any]) -> Any:
    """Return the sum of many arrays."""
    return sum(x.sum() for x in xs)


def numpy_leaves(caller: Caller, leaves: int, seconds: float) -> Once:
    """Time consecutive calls on leaves that come from numpy each time."""
    return _calls(caller, [np.ones(16, np.float32) for _ in range(leaves)], seconds)


def resident_leaves(caller: Caller, leaves: int, seconds: float) -> Once:
    """The same on leaves that stay there."""
    return _calls(caller, [caller.put(np.ones(16, np.float32)) for _ in range(leaves)], seconds)


def rows(effort: Effort) -> Iterator[Row]:
    """From 1 to 1,000 leaves."""
    with crew((ours, bare_socket, plain_jax, tutorial)) as contenders:
        for leaves in effort.sizes(1, 10, 100, 1000):
            for what, workload in (("numpy", numpy_leaves), ("resident", resident_leaves)):
                only = [] if what == "numpy" else [ours.NAME, plain_jax.NAME]
                label = f"call with {leaves:,} {what} {'leaf' if leaves == 1 else 'leaves'}"
                samples = contenders.compare(
                    label, workload, effort.rounds(11), only, leaves=leaves, seconds=effort.seconds(0.1)
                )
                yield Row(label, samples, at=leaves)


def _calls(caller: Caller, xs: list[Any], seconds: float) -> Once:
    total = caller.jit(sum_of)
    assert caller.look(total(xs)) == 16 * len(xs), "a wrong answer"
    return lambda: per_call(lambda: caller.look(total(xs)), seconds)
