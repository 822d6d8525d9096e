"""A suite whose tests see what a trace does, one effect each. Two of the tests fail, and one is expected to."""

import logging
import sys
import warnings
from typing import Any
from unittest import mock

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

X = np.arange(3.0, dtype=np.float32)
traces = 0


def test_a_counter_in_a_traced_function() -> None:
    @jax.jit
    def counted(x: Any) -> Any:
        global traces
        traces += 1
        return x * 2

    counted(X), counted(X + 1)
    assert traces == 1


def test_chex_counts_traces() -> None:
    chex.clear_trace_counter()

    @jax.jit
    @chex.assert_max_traces(n=1)
    def limited(x: Any) -> Any:
        return x * 3

    limited(X)
    with pytest.raises(AssertionError, match="traced > 1 times"):
        limited(X[:2])


def test_jax_counts_traces() -> None:
    # Projects use it, although it is not public.
    test_util = pytest.importorskip("jax._src.test_util", reason="NOT TESTED HERE: this jax counts elsewhere")
    with test_util.count_jit_tracing_cache_miss() as count:
        jax.jit(lambda x: jax.lax.neg(x))(X)
    assert count() == 1


def test_a_mock_is_called_by_the_trace() -> None:
    called = mock.Mock(side_effect=lambda x: x * 5)
    jax.jit(lambda x: called(x))(X)
    assert called.call_count == 1


def test_lines_that_a_coverage_tool_counts() -> None:
    lines: list[int] = []

    def note(frame: Any, event: str, argument: Any) -> Any:
        if frame.f_code.co_name == "covered":
            lines.append(frame.f_lineno)
        return note

    def covered(x: Any) -> Any:
        return x * 6

    before = sys.gettrace()
    sys.settrace(note)
    try:
        jax.jit(covered)(X)
    finally:
        sys.settrace(before)
    assert lines


def test_warnings_of_a_trace() -> None:
    @jax.jit
    def warns(x: Any) -> Any:
        warnings.warn("as expected", UserWarning, stacklevel=1)
        return x * 7

    with pytest.warns(UserWarning, match="as expected"):
        warns(X)


def test_a_warning_that_is_an_error() -> None:
    @jax.jit
    def warns(x: Any) -> Any:
        warnings.warn("not expected", UserWarning, stacklevel=1)
        return x * 8

    warns(X)


def test_log_lines_of_a_trace(caplog: Any) -> None:
    @jax.jit
    def logs(x: Any) -> Any:
        logging.getLogger("suite").warning("traced")
        return x * 9

    logs(X)
    assert [record.message for record in caplog.records] == ["traced"]


def test_jax_logs_compilations(caplog: Any) -> None:
    with jax.log_compiles(), caplog.at_level(logging.DEBUG, "jax"):
        jax.jit(lambda x: x * 10)(X)
    assert sum(record.message.startswith("Finished XLA compilation") for record in caplog.records) == 1


def test_output_of_a_trace(capsys: Any) -> None:
    @jax.jit
    def prints(x: Any) -> Any:
        print("traced")
        return x * 11

    prints(X)
    assert capsys.readouterr() == ("traced\n", "")


def test_a_leaked_tracer() -> None:
    leaked: list[Any] = []

    @jax.jit
    def leaks(x: Any) -> Any:
        leaked.append(x)
        return x * 12

    with jax.checking_leaks(), pytest.raises(Exception, match="Leaked"):
        leaks(X)


def test_settings_of_one_test() -> None:
    with jax.enable_x64(True):
        assert jax.jit(lambda x: x * 13)(np.ones(3)).dtype == np.float64
    assert jax.jit(lambda x: x * 13)(np.ones(3)).dtype == np.float32


def test_caches_that_are_cleared() -> None:
    seen: list[Any] = []

    @jax.jit
    def again(x: Any) -> Any:
        seen.append(1)
        return x * 14

    again(X)
    jax.clear_caches()
    again(X)
    assert len(seen) == 2


def test_jax_computes_where_it_would() -> None:
    assert not jax.config.jax_platforms


def test_arrays_are_those_of_jax() -> None:
    result = jax.jit(lambda x: x * 15)(X)
    assert type(result) is type(jnp.ones(3))
    assert result.unsafe_buffer_pointer()


def test_listeners_are_those_of_the_suite() -> None:
    monitoring = pytest.importorskip("jax._src.monitoring", reason="NOT TESTED HERE: this jax lists them elsewhere")
    assert [one.__module__ for one in monitoring.get_event_duration_listeners() if "jitclient" in one.__module__] == []


def test_an_assertion_in_a_trace() -> None:
    @jax.jit
    def asserts(x: Any) -> Any:
        assert x.shape == (4,)
        return x * 16

    asserts(X)


def test_a_callback() -> None:
    seen: list[Any] = []
    jax.jit(lambda x: jax.debug.callback(seen.append, x.sum()))(X)
    jax.effects_barrier()
    assert len(seen) == 1


@pytest.mark.xfail(strict=True)
def test_an_expected_failure() -> None:
    assert jax.jit(lambda x: x.sum() * 17)(X) == 0


def test_no_nan() -> None:
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        jax.jit(jnp.log)(-X)
