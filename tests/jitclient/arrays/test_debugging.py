"""JAX's means of debugging, with functions and arrays on the daemon: the same as in plain JAX, compared with it."""

import gc
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitclient

X = np.ones((4, 4), np.float32)


def log_plus(x: Any) -> Any:
    return jnp.log(x) + 1


ours, plain = jitclient.jit(log_plus), jax.jit(log_plus)
pytestmark = pytest.mark.usefixtures("daemon")


def outcome(call: Callable[[], Any]) -> tuple[str, str]:
    """The type of a call's exception and the first line of its text; or "none", and the value."""
    try:
        return "none", str(np.asarray(call()))
    except Exception as error:
        return type(error).__name__, str(error).splitlines()[0]


def test_live_arrays_list_results() -> None:
    y = ours(X)
    assert any(array is y for array in jax.live_arrays())
    y.delete()
    assert not any(array is y for array in jax.live_arrays())
    here = jnp.ones(3)
    assert any(array is here for array in jax.live_arrays())
    del y
    gc.collect()


def test_a_pointer_says_where_the_array_is() -> None:
    y = ours(X)
    assert not hasattr(y, "unsafe_buffer_pointer")
    with pytest.raises(
        AttributeError, match=r"in the daemon's memory. `x.in_process\(\)` has an unsafe_buffer_pointer"
    ):
        y.unsafe_buffer_pointer()
    assert y.in_process().unsafe_buffer_pointer()


def test_an_array_that_was_placed_is_committed() -> None:
    assert not ours(X).committed
    assert not plain(X).committed


def test_a_sharding_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    drawn = []
    for function in (plain, ours):
        jax.debug.visualize_array_sharding(function(X))
        drawn.append(capsys.readouterr().out)
    assert drawn[0] == drawn[1] != ""


GUARDED: dict[str, Callable[[Any, Any], Any]] = {
    "an array of the host": lambda function, there: function(X),
    "a number": lambda function, there: function(2.0),
    "an array of the device": lambda function, there: function(there),
    "an array that was put": lambda function, there: function(jax.device_put(X)),
    "a read": lambda function, there: np.asarray(there),
}


@pytest.mark.parametrize("level", ["disallow", "disallow_explicit", "allow"])
@pytest.mark.parametrize("case", GUARDED)
def test_a_guard_forbids_the_same_transfers(case: str, level: str) -> None:
    found = []
    for function in (plain, ours):
        there = function(X)
        for _ in range(3):  # with a plan
            GUARDED[case](function, there)
        with jax.transfer_guard(level):
            found.append(outcome(lambda: GUARDED[case](function, there)))  # noqa: B023
        GUARDED[case](function, there)
    assert found[0] == found[1]
    if level == "disallow":
        assert (found[0][0] == "none") == (case not in ("an array of the host", "a number"))


def test_a_guard_lets_other_functions_have_an_array_of_the_daemon() -> None:
    y = ours(X)
    with jax.transfer_guard("disallow"):
        assert float(jnp.max(y)) == 1
        assert float(np.max(y + y)) == 2


@pytest.mark.parametrize("setting", ["debug_nans", "debug_infs"])
@pytest.mark.parametrize("value", [-1, 0, 1])
def test_checks_name_the_operation(setting: str, value: float, capfd: pytest.CaptureFixture[str]) -> None:
    with getattr(jax, setting)(True):
        wanted, found = outcome(lambda: plain(X * value)), outcome(lambda: ours(X * value))
    assert found == wanted
    failing = {"debug_nans": [-1], "debug_infs": [0]}[setting]
    assert (found == ("none", str(np.asarray(plain(X * value))))) == (value not in failing)


def test_logs_name_the_line_of_the_call(caplog: pytest.LogCaptureFixture) -> None:
    new = jitclient.jit(lambda x: jnp.sin(x) * 7)
    before = jax.config.jax_explain_cache_misses
    jax.config.update("jax_explain_cache_misses", True)
    try:
        with caplog.at_level(logging.WARNING), jax.log_compiles(True):
            new(X)
    finally:
        jax.config.update("jax_explain_cache_misses", before)
    assert f"TRACING CACHE MISS at {Path(__file__)}" in caplog.text
    assert "client/jitclient/" not in caplog.text
    assert "<lambda>(f32[4,4]) was made on the daemon: " in caplog.text


def test_leaked_tracers_are_found() -> None:
    leaked: list[Any] = []

    def leaks(x: Any) -> Any:
        leaked.append(x)
        return x + 1

    with jax.checking_leaks():
        wanted = outcome(lambda: jax.jit(leaks)(X))
        leaked.clear()
        assert outcome(lambda: jitclient.jit(leaks)(X)) == wanted
    leaked.clear()
    assert wanted == ("Exception", "Leaked trace DynamicJaxprTrace. Leaked tracer(s):")
