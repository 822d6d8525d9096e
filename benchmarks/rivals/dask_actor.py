"""A Dask actor that holds jitted functions; each call waits for its answer, as an actor's arguments are values."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.rivals import Caller, clusters, no_server
from benchmarks.rivals.ray_actor import Jitted

NAME = "Dask actor"
NEEDS = ("distributed", "jax")
serve = no_server


@contextlib.contextmanager
def connect() -> Iterator[Caller]:
    """A Dask cluster of its own with one worker process, and one actor in it."""
    with clusters.dask(workers=1) as client:
        actor = client.submit(Jitted, actor=True).result()

        def jit(fun: Callable[..., Any]) -> Callable[..., Any]:
            number = actor.jit(fun).result()
            return lambda *args: actor.call(number, *args).result()

        yield Caller(jit)
