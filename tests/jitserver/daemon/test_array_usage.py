"""Accounting of arrays beside the threads that make and drop them."""

import gc
from collections.abc import Iterator

import jax.numpy as jnp
import pytest

from jitserver.daemon import array_usage
from jitserver.daemon.arrays.budget import ArrayBudget
from jitserver.daemon.arrays.named_arrays import NamedArrays
from jitserver.daemon.sessions.session import DaemonSession


@pytest.fixture
def frequent_collections() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(1)
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("frequent_collections")
@pytest.mark.parametrize("change", ["more", "fewer"])
def test_arrays_may_come_and_go_during_a_count(change: str) -> None:
    """Garbage collection, above all JAX's part of it, lets another thread run in the middle of any function."""
    session = DaemonSession(0, ArrayBudget())
    array = jnp.zeros(2, jnp.float32)
    session.keep(0, [array] * 1000)
    more, fewer = iter(range(1000, 10**6)), iter(range(500))

    def change_arrays(phase: str, _: object) -> None:
        if change == "more":
            session.keep(next(more), [array])
        else:
            session.arrays.pop(next(fewer, -1), None)

    gc.callbacks.append(change_arrays)
    try:
        counted = array_usage.usage(NamedArrays(), [session])
    finally:
        gc.callbacks.remove(change_arrays)
    assert len(session.arrays) != 1000
    assert (counted.nbytes, [owned.arrays for owned in counted.sessions]) == (8, [1])
