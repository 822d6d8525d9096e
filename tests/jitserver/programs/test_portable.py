"""Programs that another machine has traced: compiled here, whatever else this process does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jitclient.wire.messages import Signature, Spec
from jitserver.programs import portable, program
from jitserver.programs.traces import lock

LEAVES = (Spec((3,), "float32"),)
SIGNATURE = Signature(b"", LEAVES, (), (), (), ())


@pytest.fixture
def trace() -> bytes:
    """A trace as another machine has serialized it."""
    traced = jax.jit(lambda x: jnp.sort(x) * 2).trace(jax.ShapeDtypeStruct((3,), "float32"))
    return portable.to_bytes(traced, "f", LEAVES, (), ())


def compiled(trace: bytes) -> list[float]:
    built = program.from_portable(trace, (), LEAVES, SIGNATURE, "f")
    (found,) = built.run(np.array([3, 1, 2], "float32"))
    values: list[float] = found.tolist()
    return values


def test_a_trace_gives_the_values_of_the_function(trace: bytes) -> None:
    assert compiled(trace) == [2.0, 4.0, 6.0]


def test_a_trace_is_compiled_while_another_function_is_traced(trace: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "_PATIENCE_SECONDS", 0.0)
    with lock.traces.taken():
        assert compiled(trace) == [2.0, 4.0, 6.0]


def test_a_program_with_effects_is_for_this_machine_only() -> None:
    def f(x: jax.Array) -> jax.Array:
        jax.debug.print("{}", x)
        return x

    traced = jax.jit(f).trace(jax.ShapeDtypeStruct((3,), "float32"))
    assert portable.to_bytes(traced, "f", LEAVES, (), ()) == b""
