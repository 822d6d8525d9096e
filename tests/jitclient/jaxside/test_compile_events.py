"""Compilations of a process's own jax, as its events count them."""

import functools
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import monitoring
from jax._src.monitoring import get_event_duration_listeners

from jitclient.core import events
from jitclient.core.events import Log
from jitclient.jaxside.compilation_cache import CompilationCache
from jitclient.jaxside.compile_events import note

COMPILED = "/jax/core/compile/backend_compile_duration"
TRACED = "/jax/core/compile/jaxpr_trace_duration"
FOUND = "/jax/compilation_cache/compile_time_saved_sec"


@pytest.fixture(autouse=True)
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    """The log of what jax compiles in the test."""
    listeners = [each for each in get_event_duration_listeners() if each is note]
    if not listeners:
        monitoring.register_event_duration_secs_listener(note)
    made = Log()
    monkeypatch.setattr(events, "log", made)
    yield made
    if not listeners:
        monitoring.unregister_event_duration_listener(note)


def compiled(log: Log) -> tuple[int, float]:
    return log.total("compiled by jax")


def found(log: Log) -> tuple[int, float]:
    return log.total("found by jax")


def function(module: str, name: str) -> Callable[[Any], Any]:
    """A function that no jax has seen, as if a module had defined it: a cache of compilations may be in use."""
    number = secrets.randbelow(1 << 30)

    def added(x: Any) -> Any:
        return x + number - (number - 1)

    added.__module__, added.__qualname__ = module, name
    return added


def test_a_compilation_is_counted_with_its_seconds(log: Log) -> None:
    x = jnp.arange(7)
    before, _ = compiled(log)
    assert jax.jit(function("__main__", "mine"))(x).tolist() == [*range(1, 8)]
    assert compiled(log)[0] == before + 1
    assert compiled(log)[1] > 0
    assert (found(log), log.counted("package")) == ((0, 0.0), {})


def test_functions_of_installed_packages_are_counted_by_package(log: Log) -> None:
    scaled = function("numpy.linalg", "scaled")
    jitted = jax.jit(scaled)
    for size in (7, 8):  # one function, compiled twice
        jitted(jnp.arange(size))
    jax.jit(functools.partial(function("numpy", "other")))(jnp.arange(7))
    jax.jit(function("json", "of_the_standard_library"))(jnp.arange(7))
    assert {key: times for key, (times, _) in log.counted("package").items()} == {
        ("numpy", "numpy.linalg.scaled"): 2,
        ("numpy", "numpy.other"): 1,
    }
    assert log.total("package")[1] <= compiled(log)[1]


def test_operations_are_no_functions_of_the_package_that_uses_them(log: Log) -> None:
    names = {"__name__": "numpy.fake", "jnp": jnp}
    exec("def shifted(x): return jnp.roll(x, 3) * 5", names)
    names["shifted"](jnp.arange(23))  # type: ignore[operator]
    assert compiled(log)[0]
    assert log.counted("package") == {}


def test_a_compilation_that_jax_finds_is_not_one_that_it_made(log: Log) -> None:
    note(FOUND, 2.5)
    note(COMPILED, 0.6, fun_name="jit(f)")
    note(COMPILED, 3.0, fun_name="jit(g)")
    note("/jax/some/other", 7.0)
    assert (found(log), compiled(log)) == ((1, 2.5), (1, 3.0))
    assert [(event.kind, event.label) for event in log.events] == [("find", "jit(f)"), ("compile", "jit(g)")]


def test_short_traces_are_left_out(log: Log) -> None:
    for seconds in (0.0005, 0.002):
        note(TRACED, seconds, fun_name="f")
    assert [(event.kind, event.label) for event in log.events] == [("trace", "f")]


def test_what_our_cache_saved_is_less_the_seconds_of_finding(tmp_path: Path, log: Log) -> None:
    cache = CompilationCache(tmp_path)
    cache.count_found(0.75, 0.25)
    note(COMPILED, 0.25)
    assert (found(log), compiled(log)[0]) == ((1, 0.5), 0)
    note(COMPILED, 2.0)
    assert (found(log), compiled(log)[0]) == ((1, 0.5), 1)


def test_a_signal_handler_may_compile_while_an_event_is_counted(log: Log) -> None:
    with log._lock:  # as in a thread that counts
        note(COMPILED, 1.0)
    assert compiled(log)[0] == 1
