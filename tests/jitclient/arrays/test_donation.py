"""Donated arguments: dead afterwards where the program took them, as under jax.jit, wherever they were."""

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitclient

pytestmark = pytest.mark.usefixtures("daemon")

X = np.arange(6, dtype=np.float32)
PLACES: dict[str, Callable[[], Any]] = {
    "here": lambda: jnp.array(X),
    "on the daemon": lambda: jitclient.device_put(X),
}


def move(x: Any, y: Any = 0.0) -> Any:
    return x + y


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("options", "args", "kwargs"),
    [
        ({"donate_argnums": 0}, 1, {}),
        ({"donate_argnames": "x"}, 1, {}),
        ({"donate_argnums": 0}, 0, {"x": 0}),
        ({"donate_argnums": 0, "static_argnums": 1}, 1, {"y": 2}),
    ],
    ids=["number", "name", "number, by keyword", "beside a static one"],
)
def test_what_was_donated_is_dead(place: str, options: Any, args: int, kwargs: Any) -> None:
    for jit in (jax.jit, jitclient.jit):
        x = jnp.array(X) if jit is jax.jit else PLACES[place]()
        given = {"x": x, **kwargs}
        given = {**kwargs, "x": x} if not args else kwargs
        result = jit(move, **options)(*[x][:args], **given)
        assert x.is_deleted()
        with pytest.raises(RuntimeError, match="deleted"):
            np.asarray(x)
        with pytest.raises((RuntimeError, ValueError), match=r"deleted"):
            jit(move)(x)
        assert np.asarray(result).tolist() == (X + kwargs.get("y", 0)).tolist()


def test_numpy_arrays_outlive_their_donation() -> None:
    x = X.copy()
    assert jitclient.jit(move, donate_argnums=0)(x).tolist() == X.tolist()
    assert x.tolist() == X.tolist()


@pytest.mark.parametrize("place", PLACES)
def test_an_array_donated_and_given_again_is_refused(place: str) -> None:
    for jit, x in ((jax.jit, jnp.array(X)), (jitclient.jit, PLACES[place]())):
        with pytest.raises((RuntimeError, ValueError), match="donate"):
            jit(move, donate_argnums=0)(x, x)


@pytest.mark.parametrize("place", PLACES)
def test_what_is_of_no_use_lives_on_with_a_warning_of_jax(place: str) -> None:
    said = []
    for jit, x in ((jax.jit, jnp.array(X)), (jitclient.jit, PLACES[place]())):

        def of_no_use(x: Any) -> Any:  # of its own for each: JAX knows what it has lowered
            return jnp.sum(x) * len(place)

        with pytest.warns(UserWarning, match=r"donated buffers were not usable: float32\[6\]") as caught:
            jit(of_no_use, donate_argnums=0)(x)
        assert not x.is_deleted()
        said.append([(str(each.message), each.category, each.filename, each.lineno) for each in caught])
    assert said[0] == said[1]


def test_a_warning_of_jax_that_the_program_makes_an_error_is_one() -> None:
    for jit in (jax.jit, jitclient.jit):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(UserWarning, match="donated buffers were not usable"):
                jit(lambda x: jnp.prod(x), donate_argnums=0)(jnp.array(X))


def test_warnings_of_a_trace_come_with_the_trace() -> None:
    def warns(x: Any) -> Any:
        warnings.warn("while it is traced", FutureWarning, stacklevel=1)
        return x + jnp.zeros((), "float32")

    jitted = jitclient.jit(warns)
    with pytest.warns(FutureWarning, match="while it is traced") as caught:
        jitted(X)
    [where] = [(each.filename, each.lineno) for each in caught]
    assert where == (__file__, warns.__code__.co_firstlineno + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jitted(X)
        jitclient.jit(warns)(X)  # found, not traced
