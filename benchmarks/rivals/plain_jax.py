"""`jax.jit` in the program's own process: no server at all."""

import contextlib
from collections.abc import Iterator

from benchmarks.rivals import Caller, no_server

NAME = "plain jax.jit"
NEEDS = ("jax",)
serve = no_server


@contextlib.contextmanager
def connect() -> Iterator[Caller]:
    """JAX in this process."""
    import jax

    yield Caller(jax.jit, jax.device_put, jax.block_until_ready)
