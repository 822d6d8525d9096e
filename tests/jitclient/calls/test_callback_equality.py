"""Functions that two traces call back: the same, or not surely the same."""

import functools
import queue
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental import io_callback

from jitclient.calls.callback_equality import are_equal, difference_of_functions
from jitclient.jaxside.callbacks import functions_of


def scaled(k: Any, x: Any) -> Any:
    return np.asarray(x) * np.float32(k)


def shifted(k: Any, x: Any) -> Any:
    return np.asarray(x) + np.float32(k)


def closed_over(k: Any) -> Callable[..., Any]:
    return lambda x: np.asarray(x) * np.float32(k)


class Scale:
    def __init__(self, k: Any) -> None:
        self.k = k

    def __call__(self, x: Any) -> Any:
        return scaled(self.k, x)

    def run(self, x: Any) -> Any:
        return scaled(self.k, x)


MADE: dict[str, Callable[[Any], Any]] = {
    "partial": lambda k: functools.partial(scaled, k),
    "keyword of a partial": lambda k: functools.partial(scaled, k=k),
    "closure": closed_over,
    "array in a closure": lambda k: closed_over(np.array(k)),
    "instance": Scale,
    "bound method": lambda k: Scale(k).run,
    "default": lambda k: lambda x, k=k: scaled(k, x),
    "keyword default": lambda k: lambda x, *, k=k: scaled(k, x),
}

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "pure_callback": lambda fun, x: jax.pure_callback(fun, x, x),
    "io_callback": lambda fun, x: io_callback(fun, x, x),
    "debug.callback": lambda fun, x: jax.debug.callback(fun, x),
}


def traced(*functions: Any, call: Callable[[Any, Any], Any] = CALLS["pure_callback"]) -> tuple[Any, ...]:
    """Return the callbacks of a fresh trace of a program."""
    made = jax.jit(lambda x: [call(fun, x) for fun in functions]).trace(np.float32(1))
    return functions_of(made, made.lower())


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", MADE)
def test_functions_are_the_same_if_all_that_they_hold_is(kind: str, call: str) -> None:
    two, again, three = (traced(MADE[kind](k), call=CALLS[call]) for k in (2.0, 2.0, 3.0))
    assert difference_of_functions(two, again, in_order=True) == ""
    assert "a different function is called back" in difference_of_functions(two, three, in_order=True)


def test_other_code_is_another_function() -> None:
    assert difference_of_functions(traced(scaled), traced(shifted), in_order=True)


def test_fewer_functions_are_another_program() -> None:
    two, three = functools.partial(scaled, 2.0), functools.partial(scaled, 3.0)
    assert difference_of_functions(traced(two, three), traced(two), in_order=True)
    assert difference_of_functions(traced(two), traced(two, three), in_order=False)


def test_another_order_is_another_program_unless_the_order_does_not_count() -> None:
    two, three = functools.partial(scaled, 2.0), functools.partial(scaled, 3.0)
    assert difference_of_functions(traced(two, three), traced(three, two), in_order=True)
    assert difference_of_functions(traced(two, three), traced(three, two), in_order=False) == ""
    assert difference_of_functions(traced(two, two), traced(two, three), in_order=False)


def test_what_cannot_be_captured_is_the_same_only_if_it_is_identical() -> None:
    held, other = queue.SimpleQueue[Any](), queue.SimpleQueue[Any]()
    assert are_equal(closed_over(held), closed_over(held))
    assert not are_equal(closed_over(held), closed_over(other))


def test_no_part_of_many_objects_of_jax_is_left_out() -> None:
    """Their attributes are in dictionaries that live for one comparison only, so that a later one may have its id."""
    kind = type("Held", (), {"__module__": "jax._src.callback", "__init__": lambda self, n: setattr(self, "n", n)})
    for length in range(2, 12):
        for last in range(length):
            here, there = ([kind((n,)) for n in range(length)] for _ in range(2))
            there[last].n = ("another",)
            assert not are_equal(closed_over(here), closed_over(there))


def test_where_a_trace_was_does_not_count() -> None:
    def here() -> list[str]:
        return traceback.format_tb(types.TracebackType(None, sys._getframe(1), 0, 1))

    def other() -> list[str]:
        return here()

    assert are_equal(closed_over(here()), closed_over(other()))
    assert not are_equal(closed_over(["first"]), closed_over(["second"]))


def test_what_refers_to_itself_has_an_end() -> None:
    def around(k: Any) -> Any:
        def fun(x: Any) -> Any:
            return fun(x) if x is k else x

        return fun

    assert are_equal(around(2.0), around(2.0))
    assert not are_equal(around(2.0), around(3.0))


def lowered_for(platform: str, function: Any) -> Any:
    """Return the wrapper that JAX would have made of a callback for another platform."""
    names = function.__code__.co_freevars
    assert "platform" in names
    cells = [
        types.CellType(platform) if name == "platform" else cell
        for name, cell in zip(names, function.__closure__, strict=True)
    ]
    made = types.FunctionType(function.__code__, function.__globals__, function.__name__, None, tuple(cells))
    made.__module__ = function.__module__
    return made


def test_a_platform_for_which_callbacks_are_wrapped_in_the_same_way_does_not_count() -> None:
    (two,), (three,) = (traced(functools.partial(scaled, k)) for k in (2.0, 3.0))
    assert are_equal(two, lowered_for("cuda", two))
    assert not are_equal(two, lowered_for("tpu", two))
    assert not are_equal(two, lowered_for("cuda", three))

    platform = "cpu"
    assert not are_equal(lambda: platform, lowered_for("cuda", lambda: platform))
