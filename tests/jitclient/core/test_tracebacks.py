"""The errors that classic mistakes end in are JAX's, with one line of advice under them."""

import traceback

import jax
import jax.numpy as jnp
import numpy as np
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


@pytest.fixture
def short_tracebacks():
    """JAX leaves its own frames out, as it does by default; an engine in this process may have turned that off."""
    before = jax.config.jax_traceback_filtering
    jax.config.update("jax_traceback_filtering", "auto")
    yield
    jax.config.update("jax_traceback_filtering", before)


@pytest.mark.usefixtures("daemon", "short_tracebacks")
@pytest.mark.parametrize(
    ("function", "options", "args"),
    [
        (lambda a, b: a @ b, {}, (np.ones((2, 3)), np.ones((2, 3)))),
        (lambda a: undefined + a, {}, (1.0,)),  # type: ignore[name-defined]  # noqa: F821
        (lambda n, x: x, {"static_argnums": 0}, ([1], 1.0)),
        (lambda a, b: a, {}, (1.0,)),
        (lambda a: a, {}, ("text",)),
    ],
    ids=["shapes", "raises", "static argument without hash", "missing argument", "no array"],
)
def test_a_traceback_has_the_frames_of_plain_jax(function, options, args):
    frames = []
    for jit in (jax.jit, jitclient.jit):
        jitted = jit(function, **options)
        for _ in range(2):
            with pytest.raises(Exception) as caught:  # noqa: PT011
                jitted(*args)
            found = traceback.extract_tb(caught.value.__traceback__)
            frames.append([(frame.filename, frame.lineno, frame.name) for frame in found])
    assert frames[2:] == frames[:2]


@pytest.mark.usefixtures("daemon")
def test_all_frames_are_there_if_jaxs_are(monkeypatch):
    monkeypatch.setenv("JAX_TRACEBACK_FILTERING", "off")
    with pytest.raises(ZeroDivisionError) as caught:
        jitclient.jit(lambda x: 1 / 0)(1.0)
    names = {frame.f_globals["__name__"] for frame, _ in traceback.walk_tb(caught.value.__traceback__)}
    assert "jitclient.calls.remote_function" in names
