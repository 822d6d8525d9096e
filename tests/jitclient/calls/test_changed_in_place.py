"""A captured value that changes in place is seen at the function's next trace, and not before, as with `jax.jit`."""

import gc
import types
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitclient

pytestmark = pytest.mark.usefixtures("daemon")


def of_dict() -> tuple[Callable[[Any, int], Any], Callable[[float], None]]:
    held = {"a": 2.0}
    return lambda x, n: x * held["a"] + n, lambda value: held.update(a=value)


def of_list() -> tuple[Callable[[Any, int], Any], Callable[[float], None]]:
    held = [2.0]
    return lambda x, n: x * sum(held) + n, lambda value: held.__setitem__(slice(None), [value - 1, 1.0])


def of_array() -> tuple[Callable[[Any, int], Any], Callable[[float], None]]:
    held = np.full(1, 2.0, np.float32)
    return lambda x, n: x * held[0] + n, held.fill


def of_attribute() -> tuple[Callable[[Any, int], Any], Callable[[float], None]]:
    held = types.SimpleNamespace(a=2.0)
    return lambda x, n: x * held.a + n, lambda value: setattr(held, "a", value)


def of_default() -> tuple[Callable[[Any, int], Any], Callable[[float], None]]:
    held = {"a": 2.0}

    def fun(x: Any, n: int, given: dict[str, float] = held) -> Any:
        return x * held["a"] + n

    return fun, lambda value: held.update(a=value)


class Model:
    def __init__(self) -> None:
        self.calls, self.scale = 0, 2.0

    def apply(self, x: Any, n: int) -> Any:
        return x * self.scale + n

    def change(self, value: float) -> None:
        self.scale, self.calls = value, self.calls + 1


def of_method() -> tuple[Callable[[Any, int], Any], Callable[[float], None]]:
    model = Model()
    return model.apply, model.change


KINDS = {kind.__name__: kind for kind in (of_dict, of_list, of_array, of_attribute, of_default, of_method)}

FIRST = (jnp.ones(2), 1)

CALLS = {
    "another shape": (jnp.ones(3), 1),
    "another dtype": (jnp.ones(2, jnp.int32), 1),
    "another static argument": (jnp.ones(2), 2),
    "a scalar": (1.0, 1),
}


def values_of(jit: Callable[..., Any], kind: Callable[..., Any], call: Any) -> list[Any]:
    fun, change = kind()
    jitted = jit(fun, static_argnums=1)
    found = [jitted(*FIRST)]
    change(3.0)
    found += [jitted(*FIRST), jitted(*call), jitted(*FIRST)]
    change(4.0)
    found += [jitted(*call), jitted(*FIRST)]
    return [np.asarray(value).tolist() for value in found]


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_new_trace_sees_it_and_an_old_program_does_not(kind: Callable[..., Any], call: Any) -> None:
    assert values_of(jitclient.jit, kind, call) == values_of(jax.jit, kind, call)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_fresh_wrapper_and_a_fresh_trace_see_it(kind: Callable[..., Any]) -> None:
    fun, change = kind()
    jitted = jitclient.jit(fun, static_argnums=1)
    assert np.asarray(jitted(*FIRST)).tolist() == [3, 3]
    change(3.0)
    again = jitclient.jit(lambda x, n: fun(x, n), static_argnums=1)
    assert np.asarray(again(*FIRST)).tolist() == [4, 4]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_stages_of_a_known_signature_have_the_old_program(kind: Callable[..., Any]) -> None:
    def compiled(jit: Callable[..., Any]) -> list[Any]:
        fun, change = kind()
        jitted = jit(fun, static_argnums=1)
        jitted(*FIRST)
        change(3.0)
        found = [jitted.lower(x, 1).compile()(x) for x in (FIRST[0], jnp.ones(3))]
        return [np.asarray(value).tolist() for value in found]

    assert compiled(jitclient.jit) == compiled(jax.jit)


@pytest.mark.parametrize("jit", [jax.jit, jitclient.jit])
def test_a_trace_ends_with_its_wrapper_and_another_function_sees_the_array(jit: Any) -> None:
    """As long as a trace lives, JAX has one constant for an array, whichever function refers to it."""
    x, held = np.ones(3, np.float32), np.full(3, 2.0)
    gc.disable()
    try:
        assert jit(lambda x: x * held)(x)[0] == 2
        held[:] = 7
        assert jit(lambda x: x * held + 0)(x)[0] == 7
    finally:
        gc.enable()
