"""A Ray actor that holds jitted functions. Its answers are references, which later calls take as they are."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.rivals import Caller, clusters, no_server

NAME = "Ray actor"
NEEDS = ("jax", "ray")
serve = no_server
_STORE_BYTES = 3 << 30


class Jitted:
    """The actor."""

    def __init__(self) -> None:
        self._programs: list[Callable[..., Any]] = []

    def jit(self, fun: Callable[..., Any]) -> int:
        """Keeps a function; returns its number."""
        import jax

        self._programs.append(jax.jit(fun))
        return len(self._programs) - 1

    def call(self, number: int, *args: Any) -> Any:
        """Calls a function with numpy arrays, for numpy arrays."""
        import jax
        import numpy as np

        return jax.tree.map(np.asarray, self._programs[number](*args))


@contextlib.contextmanager
def connect() -> Iterator[Caller]:
    """A Ray of its own on this machine, with one actor."""
    with clusters.ray(object_store_memory=_STORE_BYTES) as ray:
        actor = ray.remote(Jitted).options(num_cpus=1).remote()

        def jit(fun: Callable[..., Any]) -> Callable[..., Any]:
            number = ray.get(actor.jit.remote(fun))
            return lambda *args: actor.call.remote(number, *args)

        yield Caller(jit, ray.put, lambda result: ray.wait([result], fetch_local=False), ray.get)
