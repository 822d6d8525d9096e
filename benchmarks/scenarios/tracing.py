"""The p99 of one client's hot calls while another client has the server trace for 2.5 s."""

import functools
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.crew import Crew, crew
from benchmarks.measure import Effort, percentile
from benchmarks.result import Row, Target
from benchmarks.rivals import Caller, bare_socket, ours, tutorial
from benchmarks.scenarios.clients import timed_calls
from benchmarks.worker import Once

_TRACE_SECONDS = 2.5
_BURST_SECONDS = 0.05
_CHAIN = 50


def slow_to_trace(salt: int, times: int, x: Any) -> Any:
    """Traces a lot that is no part of the program, so that there is next to nothing to compile.

    Each salt makes a different program.
    """
    for _ in range(times):
        jax.eval_shape(lambda y: _chain(y), x)  # noqa: PLW0108  (a new function, so that it is traced again)
    return x + salt


def new_traces(caller: Caller, seconds: float) -> Once:
    """Seconds of a call that needs a trace of about so long; each sample is of a new function."""
    x = np.ones(8, np.float32)
    before = time.perf_counter()
    jax.eval_shape(functools.partial(slow_to_trace, 0, 20), x)
    times = max(1, int(seconds / ((time.perf_counter() - before) / 20)))
    salts = itertools.count(1)

    def once() -> float:
        salt = next(salts)
        before = time.perf_counter()
        assert caller.look(caller.jit(functools.partial(slow_to_trace, salt, times))(x))[0] == salt + 1
        return time.perf_counter() - before

    return once


def rows(effort: Effort) -> Iterator[Row]:
    """The row of DESIGN's table, and the same while no client traces."""
    trace, burst = effort.one(25, 1) / 25 * _TRACE_SECONDS, effort.seconds(_BURST_SECONDS)
    with crew((ours, bare_socket, tutorial), clients=2) as contenders:
        for name in list(contenders.workers):
            contenders.attempt(name, functools.partial(_prepare, contenders, name, trace, burst))
        takers = {name: functools.partial(_turn, contenders, name) for name in contenders.workers}
        samples = contenders.take_turns("hot calls during a trace", takers, effort.rounds(5), warm=0)
    traced = {name: statistics.median(turn["traced"] for turn in turns) for name, turns in samples.taken.items()}
    note = "the other's call took " + ", ".join(f"{seconds:.1f} s at {name}" for name, seconds in traced.items())
    yield Row("hot call's p99, the server idle otherwise", samples.of(_p99("quiet")))
    yield Row("hot call's p99 while another client traces", samples.of(_p99("busy")), (Target(3e-3),), note=note)
    yield Row("hot call's longest meanwhile", samples.of(lambda turn: max(turn["busy"])))


def _chain(x: Any) -> Any:
    for _ in range(_CHAIN):
        x = jnp.sin(x) + 1
    return x


def _prepare(contenders: Crew, name: str, trace: float, burst: float) -> None:
    hot, tracer = contenders.workers[name]
    hot.prepare(timed_calls, seconds=burst)
    tracer.prepare(new_traces, seconds=trace)


def _turn(contenders: Crew, name: str) -> dict[str, Any]:
    hot, tracer = contenders.workers[name]
    quiet = [taken for _ in range(5) for taken in hot.sample()]
    busy: list[float] = []
    tracer.begin()
    while not busy or not tracer.has_finished():
        busy += hot.sample()
    return {"quiet": quiet, "busy": busy, "traced": tracer.result()}


def _p99(which: str) -> Callable[[dict[str, Any]], float]:
    return lambda turn: percentile(turn[which], 99)
