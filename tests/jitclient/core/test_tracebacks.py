"""The errors that classic mistakes end in are JAX's, with one line of advice under them."""

import jax
import jax.numpy as jnp
import pytest
from flax import nnx
from flax.errors import TraceContextError

import jitclient


class Scale(nnx.Module):
    def __init__(self):
        self.weight = nnx.Param(jnp.ones(3))
        self.count = nnx.Variable(jnp.zeros(()))


scale = Scale()


def branch(x):
    return x if x > 0 else -x


def repeat(x):
    for _ in range(x.astype(int)):
        x = x + 1
    return x


def collect(x):
    seen = []
    jax.lax.fori_loop(0, 3, lambda i, c: (seen.append(c), c + 1)[1], x)
    return jax.lax.scan(lambda c, _: (c + seen[0], None), x, None, length=2)[0]


def dot_with_a_param(x):
    return jax.lax.dot(x, scale.weight)


def change_a_module_in_a_loop(x):
    def body(i, c):
        scale.count[...] += 1
        return c

    return jax.lax.fori_loop(0, 3, body, x)


MISTAKES = [
    (branch, jax.errors.TracerBoolConversionError, "jax.lax.cond"),
    (repeat, jax.errors.TracerIntegerConversionError, "jax.lax.fori_loop"),
    (collect, jax.errors.UnexpectedTracerError, "kept an intermediate value"),
    (dot_with_a_param, ValueError, "nnx.Param"),
    (change_a_module_in_a_loop, TraceContextError, "nnx.split"),
]


@pytest.mark.usefixtures("daemon")
@pytest.mark.parametrize(("mistake", "error", "advice"), MISTAKES, ids=[mistake.__name__ for mistake, *_ in MISTAKES])
def test_a_classic_mistake_gets_jaxs_error_and_one_hint(mistake, error, advice):
    x = jnp.ones(3) if mistake is dot_with_a_param else jnp.ones(())
    with pytest.raises(error) as plain:
        jax.jit(mistake)(x)
    with pytest.raises(error) as ours:
        jitclient.jit(mistake)(x)
    assert type(ours.value) is type(plain.value)
    hints = [note for note in ours.value.__notes__ if note.startswith("hint: ")]
    assert len(hints) == 1
    assert advice in hints[0]


@pytest.mark.usefixtures("daemon")
def test_other_errors_get_none():
    def fails(x):
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as ours:
        jitclient.jit(fails)(1.0)
    assert not [note for note in getattr(ours.value, "__notes__", []) if note.startswith("hint: ")]
