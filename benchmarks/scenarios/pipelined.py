"""Calls on arrays that stay where they are computed, one after the other, looked at only in the end."""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.crew import crew
from benchmarks.measure import Effort
from benchmarks.result import Row, Target
from benchmarks.rivals import Caller, ours, plain_jax, ray_actor
from benchmarks.worker import Once


def halved(x: Any) -> Any:
    """Hardly any work."""
    return x * 0.5 + 1


def squared(x: Any) -> Any:
    """A product of matrices, which stays finite."""
    return x @ x * (1 / x.shape[0])


def all_halved(xs: list[Any]) -> list[Any]:
    """A tree in, a tree out."""
    return [x * 0.5 + 1 for x in xs]


def small_steps(caller: Caller, calls: int) -> Once:
    """The client's seconds for one call, not those until the last result is there."""
    step, start = caller.jit(halved), caller.put(np.zeros(8, np.float32))

    def once() -> float:
        x = step(start)
        caller.wait(x)
        before = time.perf_counter()
        for _ in range(calls):
            x = step(x)
        taken = time.perf_counter() - before
        np.testing.assert_allclose(caller.look(x), _after(calls + 1), rtol=1e-3)
        return taken / calls

    return once


def matrix_steps(caller: Caller, side: int, calls: int) -> Once:
    """Seconds for all calls, until the last result is there."""
    step, start = caller.jit(squared), caller.put(np.ones((side, side), np.float32))

    def once() -> float:
        caller.wait(step(start))
        before, x = time.perf_counter(), start
        for _ in range(calls):
            x = step(x)
        caller.wait(x)
        taken = time.perf_counter() - before
        np.testing.assert_allclose(caller.look(x), 1, rtol=1e-3)
        return taken

    return once


def tree_steps(caller: Caller, leaves: int, calls: int) -> Once:
    """Seconds for one call on many resident leaves, the wait for the last result shared among them."""
    step, start = caller.jit(all_halved), [caller.put(np.zeros(64, np.float32)) for _ in range(leaves)]

    def once() -> float:
        caller.wait(step(start))
        before, xs = time.perf_counter(), start
        for _ in range(calls):
            xs = step(xs)
        caller.wait(xs)
        taken = time.perf_counter() - before
        np.testing.assert_allclose(caller.look(xs[-1]), _after(calls), rtol=1e-3)
        return taken / calls

    return once


def rows(effort: Effort) -> Iterator[Row]:
    """The rows of DESIGN's table on pipelined calls."""
    rounds = effort.rounds(15)
    calls, side, leaves = effort.one(1000, 20), effort.one(256, 16), effort.one(100, 5)
    with crew((ours, plain_jax, ray_actor)) as contenders:
        samples = contenders.compare("pipelined calls", small_steps, rounds, calls=calls)
        yield Row("pipelined call: the client's time", samples, (Target(6e-6),))
        samples = contenders.compare("steps on matrices", matrix_steps, rounds, side=side, calls=calls)
        yield Row(f"{calls:,} pipelined steps, {side}x{side}", samples, (Target(1.05, times=plain_jax.NAME),))
        local = [ours.NAME, plain_jax.NAME]  # a tree of references would be fetched and sent, leaf by leaf
        samples = contenders.compare(
            "steps on trees", tree_steps, rounds, only=local, leaves=leaves, calls=effort.one(200, 5)
        )
        yield Row(f"pipelined call, {leaves} resident leaves", samples, (Target(1.2, times=plain_jax.NAME),))


def _after(calls: int) -> float:
    """Return zero after so many calls of `halved`."""
    return 2 - 2 * 0.5**calls
