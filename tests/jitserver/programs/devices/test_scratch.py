"""Scratch memory: used where possible, and never shared with a result."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from jitclient.wire.array_transport import ALIGNMENT, HostArray, allocate
from jitserver.programs.devices import scratch
from jitserver.programs.devices.backend import backend
from jitserver.programs.devices.scratch import MAX_BYTES, MAX_PROGRAMS, Scratch, Scratches

ONES = np.ones(64, np.float32)


def doubled(*leaves: Any) -> list[Any]:
    return [jnp.asarray(leaf) * 2 for leaf in leaves]


def after_first(run: Callable[..., Any], *leaves: HostArray) -> tuple[Scratch, Any]:
    made = Scratch()
    return made, made.first(run)(*leaves)


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.bool_, np.complex64, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(), (3,), (5, 1, 7)], ids=str)
def test_writing_the_memory_changes_the_arrays(dtype: Any, shape: tuple[int, ...]) -> None:
    zeros, ones = np.zeros(shape, dtype), np.ones(shape, dtype)
    made, results = after_first(lambda *leaves: [leaf.copy() for leaf in leaves], zeros, ones)
    for memory in made.memory:
        memory[:] = ones.tobytes()
    assert [array.tolist() for array in made.arrays] == [ones.tolist(), ones.tolist()]
    assert [(array.dtype, array.weak_type) for array in made.arrays] == [(dtype, False), (dtype, False)]
    assert [result.tolist() for result in results] == [zeros.tolist(), ones.tolist()]


SHARE: dict[str, Callable[..., Any]] = {
    "the first argument": lambda x, y: [y + 1, x],
    "the last argument": lambda x, y: [x + 1, y],
    "its memory": lambda x, y: [jax.device_put(np.asarray(y), may_alias=True)],
    "a part of its memory": lambda x, y: [jax.device_put(np.asarray(y)[32:], may_alias=True)],
}


@pytest.mark.parametrize("case", SHARE)
def test_no_scratch_memory_if_a_result_shares_it(case: str) -> None:
    made, results = after_first(SHARE[case], ONES, ONES)
    assert (made.arrays, made.memory) == ([], [])
    assert np.asarray(results[-1]).tolist() == [1.0] * len(results[-1])


COMPILED: dict[str, Callable[..., Any]] = {
    "itself": lambda x: x,
    "twice": lambda x: (x, x),
    "reshaped": lambda x: x.reshape(8, 8),
    "sliced": lambda x: x[:32],
    "chosen": lambda x: jax.lax.cond(x[0] > 0, lambda: x, lambda: x + 1),
    "of a loop that does nothing": lambda x: jax.lax.fori_loop(0, 0, lambda _, y: y * 2, x),
    "seen as integers": lambda x: jax.lax.bitcast_convert_type(x, jnp.int32),
}


@pytest.mark.parametrize("case", COMPILED)
def test_results_never_share_scratch_memory(case: str) -> None:
    run = jax.jit(lambda x: jax.tree.leaves(COMPILED[case](x))).lower(ONES).compile()
    made, results = after_first(run, ONES)
    results += run(*made.arrays) if made.arrays else []
    values = [np.array(result) for result in results]
    for memory in made.memory:
        memory[:] = bytes(len(memory))
    assert [np.asarray(result).tolist() for result in results] == [value.tolist() for value in values]


def test_no_scratch_memory_if_jax_copies_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "allocate", lambda nbytes: allocate(nbytes + ALIGNMENT)[4 : 4 + nbytes])
    made, results = after_first(doubled, ONES)
    assert (made.arrays, results[0].tolist()) == ([], [2.0] * 64)


def test_no_scratch_memory_on_other_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = dataclasses.replace(backend(), shares_host_memory=False)
    monkeypatch.setattr(scratch, "backend", lambda: elsewhere)
    assert after_first(doubled, ONES)[0].arrays == []


def test_no_scratch_memory_without_results() -> None:
    made, results = after_first(lambda x: [], ONES)
    assert (made.arrays, results) == ([], [])


def test_no_scratch_memory_for_a_failed_call() -> None:
    made = Scratch()
    with pytest.raises(ZeroDivisionError):
        made.first(lambda x: 1 / 0)(ONES)
    assert made.arrays == []


@pytest.mark.parametrize(("nbytes", "count"), [(MAX_BYTES // 2, 2), (MAX_BYTES // 2 + 1, 0), (0, 0)])
def test_scratch_memory_has_a_limit(nbytes: int, count: int) -> None:
    made, _ = after_first(doubled, *[np.ones(nbytes, np.int8)] * 2)
    assert len(made.arrays) == count


def test_the_number_of_programs_has_a_limit() -> None:
    made = Scratches()
    first = made[0]
    assert made[0] is first
    for number in range(MAX_PROGRAMS + 1):
        made[number].calls += 1
    assert list(made) == list(range(1, MAX_PROGRAMS + 1))
    assert made[0] is not first
