"""Functions that are only handed over to be called back, with all that they read, are no part of a capture."""

import functools
from typing import Any

import jax
import pytest
from jax.experimental import io_callback

from jitclient.capture.dump import capture
from jitclient.capture.load import load
from jitclient.capture.user_code.callback_only import callback_only
from jitclient.errors import CaptureError

START, LIMIT, lines = object(), 3, [1.0]


def note(x: Any) -> None:
    lines.append((x, START))


def callback(fun: Any, x: Any) -> Any:
    return fun(x)


def a_function(x: Any) -> Any:
    jax.debug.callback(note, x, LIMIT)
    return io_callback(note, None, x, ordered=True)


def a_lambda(x: Any) -> Any:
    return jax.pure_callback(lambda v, n=LIMIT: (lines, START, v * n), x, x)


def one_defined_inside(x: Any) -> Any:
    def inner(v: Any) -> None:
        lines.append(v)

    def body(carry: Any, n: Any) -> Any:
        jax.debug.callback(inner, n)
        return carry, START

    return jax.lax.scan(body, x, None)


def one_called_as_well(x: Any) -> Any:
    note(x)
    jax.debug.callback(note, x)


def one_defined_inside_and_called(x: Any) -> Any:
    def inner(v: Any) -> None:
        lines.append(v)

    jax.debug.callback(inner, x)
    return inner(x)


def one_that_goes_elsewhere(x: Any) -> Any:
    jax.debug.callback(note, x)
    return [note]


def an_attribute(x: Any) -> Any:
    jax.debug.callback(note.__call__, x)


def a_partial(x: Any) -> Any:
    jax.debug.callback(functools.partial(note, x))


def a_function_of_that_name(x: Any) -> Any:
    return callback(note, x)


def the_second_argument(x: Any) -> Any:
    jax.debug.callback(note, lines)


def one_that_is_rebound(x: Any) -> Any:
    global note
    jax.debug.callback(note, x)
    note = note


def a_lambda_in_a_variable_of_two(x: Any) -> Any:
    inner = lambda v: lines.append(v)
    if x is None:
        inner = lambda v: START
    jax.debug.callback(inner, x)


HANDED = {
    a_function: {"note"},
    a_lambda: {"lines", "START", "LIMIT"},
    one_defined_inside: {"lines"},
    one_called_as_well: set(),
    one_defined_inside_and_called: set(),
    one_that_goes_elsewhere: set(),
    an_attribute: set(),
    a_partial: set(),
    a_function_of_that_name: set(),
    the_second_argument: {"note"},
    one_that_is_rebound: set(),
    a_lambda_in_a_variable_of_two: set(),
}


@pytest.mark.parametrize("fun", HANDED, ids=lambda fun: fun.__name__)
def test_what_is_only_handed_over(fun: Any) -> None:
    assert callback_only(fun).names & {"note", "lines", "START", "LIMIT"} == HANDED[fun]


def of_a_closure(log: Any, other: Any, scale: Any) -> Any:
    def fun(x: Any) -> Any:
        jax.debug.callback(lambda v: log.append(v), x)
        jax.debug.callback(other, x * scale)
        return x

    return fun


def test_variables_of_a_closure() -> None:
    assert callback_only(of_a_closure([], note, 2)).free == {"log", "other"}
    keys = [capture(of_a_closure([n], [note, print][n], 2)).key for n in range(2)]
    assert keys[0] == keys[1]
    assert capture(of_a_closure([0], note, 3)).key != keys[0]


def test_what_is_handed_over_is_named_and_not_called() -> None:
    captured = capture(a_function)
    loaded = load(captured.payload)
    stand_in = loaded.fn.__globals__["note"]
    assert captured.made_at(loaded.number_of(stand_in)) is note  # type: ignore[arg-type]
    with pytest.raises(CaptureError, match="only a callback was expected"):
        stand_in(1)


def test_what_other_code_uses_is_captured_whoever_comes_first() -> None:
    def calls(x: Any) -> Any:
        return note(x)

    for order in ((a_function, calls), (calls, a_function)):
        loaded = load(capture(lambda x, order=order: [fun(x) for fun in order]).payload)
        [found] = {fun.__globals__["note"] for fun in loaded.fn.__defaults__[0]}
        assert found.__name__ == "note"
