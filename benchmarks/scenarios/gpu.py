"""The accelerator of this machine: calls until they return and until their results are there, transfers, restarts."""

import contextlib
import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks import processes
from benchmarks.crew import crew
from benchmarks.measure import Effort, interleave
from benchmarks.processes import environment, temporary_folder
from benchmarks.result import OURS, Row, Target
from benchmarks.rivals import Caller, disk_cache, ours, plain_jax
from benchmarks.scenarios import first_call, restart
from benchmarks.worker import Once

_SIDE = 512
_CALLS = 20
_MIB = 1 << 20
_LAYERS, _ROUNDS = 8, 3
"""The transformer and its runs, fewer than elsewhere: an accelerator is often borrowed."""
_NOT_KEPT = {"JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "none"}


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
        yield _after_edits(few)


def _after_edits(effort: Effort) -> Row:
    """The row of a step of which one layer changes each time: XLA need not measure the fusions of the others again."""
    layers, width, edits = effort.one(_LAYERS, 1), effort.one(256, 16), itertools.count(1)
    with contextlib.ExitStack() as stack:

        def edited(jit: str, serve: Callable[..., Any], **env: str) -> Callable[[], Any]:
            folder = stack.enter_context(temporary_folder())
            told = environment(folder, **stack.enter_context(serve(folder, **env)))

            def once() -> float:
                edit = {"EDITED": f"1.{next(edits):03}"}
                return first_call.run(jit, layers, width, {**told, **edit}, folder)["first"]

            return once

        takers = {
            OURS: edited("jitclient", ours.serve),
            "with nothing kept of XLA's measurements": edited("jitclient", ours.serve, **_NOT_KEPT),
            disk_cache.NAME: edited("jax", disk_cache.serve),
        }
        samples = interleave(takers, effort.rounds(5), "edits of one layer", 1 + effort.warm(1))
    targets = (Target(1.0, times=disk_cache.NAME),)
    return Row(f"{layers}-layer transformer step: the first call after an edit of one layer", samples, targets)


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
