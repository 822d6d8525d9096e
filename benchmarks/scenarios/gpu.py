"""The accelerator of this machine: calls until they return and until their results are there, transfers, restarts."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks import processes
from benchmarks.crew import crew
from benchmarks.measure import Effort
from benchmarks.result import Row, Target
from benchmarks.rivals import Caller, ours, plain_jax
from benchmarks.scenarios import first_call, restart
from benchmarks.worker import Once

_SIDE = 512
_CALLS = 20
_MIB = 1 << 20
_LAYERS, _ROUNDS = 8, 3
"""The transformer and its runs, fewer than elsewhere: an accelerator is often borrowed."""


def rows(effort: Effort) -> Iterator[Row]:
    """Rows about the accelerator that jax finds by itself; without one, a row that says so."""
    platform = processes.platform_of_jax().split()[0]
    if platform == "cpu":
        why = "NOT MEASURED: jax finds no accelerator on this machine"
        yield Row("an accelerator", targets=(Target(1.0, times=plain_jax.NAME, not_yet=why),))
        return
    with _computing_on(platform):
        nbytes = effort.one(64 * _MIB, _MIB)
        works: dict[str, Callable[..., Once]] = {
            "a call on resident arrays, until it returns": resident_call,
            "a call of numpy arrays alone, until it returns": numpy_call,
            "the same, and its result read": numpy_call_and_read,
            f"{nbytes // _MIB} MiB to the device": to_device,
            f"{nbytes // _MIB} MiB from the device": from_device,
        }
        with crew((ours, plain_jax)) as contenders:
            for what, work in works.items():
                sizes = {"nbytes": nbytes} if "MiB" in what else {}
                yield Row(f"{platform}: {what}", contenders.compare(what, work, effort.rounds(11), **sizes))
        few = dataclasses.replace(effort, max_rounds=_ROUNDS)
        yield from first_call.rows(few, _LAYERS)
        yield from restart.rows(few, _LAYERS)


def dense(x: Any, w: Any) -> Any:
    """A layer."""
    return x @ w


def _matrices() -> list[Any]:
    return list(np.random.default_rng(0).normal(size=(2, _SIDE, _SIDE)).astype(np.float32))


def _until_it_returns(caller: Caller, call: Callable[[], Any]) -> Once:
    def once() -> float:
        before = time.perf_counter()
        results = [call() for _ in range(_CALLS)]
        seconds = time.perf_counter() - before
        for result in results:
            caller.wait(result)
        return seconds / _CALLS

    return once


def resident_call(caller: Caller) -> Once:
    """Time calls on arrays of the device, whose results are waited for later."""
    layer, (x, w) = caller.jit(dense), map(caller.put, _matrices())
    return _until_it_returns(caller, lambda: layer(x, w))


def numpy_call(caller: Caller) -> Once:
    """Time calls on numpy arrays, whose results are waited for later."""
    layer, (x, w) = caller.jit(dense), _matrices()
    return _until_it_returns(caller, lambda: layer(x, w))


def numpy_call_and_read(caller: Caller) -> Once:
    """Time one call on numpy arrays and the read of its result."""
    layer, (x, w) = caller.jit(dense), _matrices()
    np.testing.assert_allclose(caller.look(layer(x, w)), x @ w, rtol=0.05, atol=0.5)  # of TF32, too
    return _timed(lambda: caller.look(layer(x, w)))


def to_device(caller: Caller, nbytes: int) -> Once:
    """Time the transfer of an array to the device."""
    x = np.ones(nbytes // 4, np.float32)
    return _timed(lambda: caller.wait(caller.put(x)))


def from_device(caller: Caller, nbytes: int) -> Once:
    """Time the read of an array that was not read before."""
    add, x = caller.jit(lambda x: x + 1), caller.put(np.ones(nbytes // 4, np.float32))

    def once() -> float:
        result = caller.wait(add(x))
        return _timed(lambda: caller.look(result))()

    return once


def _timed(action: Callable[[], Any]) -> Callable[[], float]:
    def once() -> float:
        before = time.perf_counter()
        action()
        return time.perf_counter() - before

    return once


@contextlib.contextmanager
def _computing_on(platform: str) -> Iterator[None]:
    """Makes the processes of this package find the accelerator beside the CPU."""
    before = dict(processes.TELLS_JAX)
    processes.TELLS_JAX["JAX_PLATFORMS"] = f"{'cuda' if platform == 'gpu' else platform},cpu"
    try:
        yield
    finally:
        processes.TELLS_JAX.clear()
        processes.TELLS_JAX.update(before)
