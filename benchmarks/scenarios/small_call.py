"""A small call: three arrays of at most 4 KiB, numpy in and numpy out, the answer waited for."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.crew import crew
from benchmarks.measure import Effort, per_call
from benchmarks.result import Row, Target
from benchmarks.rivals import Caller, bare_socket, dask_actor, ours, plain_jax, ray_actor, tutorial
from benchmarks.worker import Once

RIVALS = (ours, bare_socket, plain_jax, tutorial, ray_actor, dask_actor)
SIDE = 32  # 4 KiB of float32


def dense(x: Any, w: Any, b: Any) -> Any:
    """A layer."""
    return x @ w + b


def three_arrays(caller: Caller, seconds: float) -> Once:
    """Time consecutive calls, for so many seconds a sample."""
    random = np.random.default_rng(0)
    x, w = random.normal(size=(2, SIDE, SIDE)).astype(np.float32)
    b = np.ones(SIDE, np.float32)
    layer = caller.jit(dense)
    np.testing.assert_allclose(caller.look(layer(x, w, b)), x @ w + b, rtol=1e-4, atol=1e-4)
    return lambda: per_call(lambda: caller.look(layer(x, w, b)), seconds)


def rows(effort: Effort) -> Iterator[Row]:
    """The row of DESIGN's table."""
    with crew(RIVALS) as contenders:
        samples = contenders.compare("small call", three_arrays, effort.rounds(21), seconds=effort.seconds(0.2))
    targets = Target(0.7, times=bare_socket.NAME), Target(1.1, times=plain_jax.NAME)
    yield Row("small call: three arrays <= 4 KiB, numpy in and out", samples, targets)
