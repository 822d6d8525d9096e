"""Compilations of a process's own jax, as its events count them."""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import monitoring

from jitclient.jaxside.compilation_cache import CompilationCache
from jitclient.jaxside.compile_events import CompileEvents

COMPILED = "/jax/core/compile/backend_compile_duration"
FOUND = "/jax/compilation_cache/compile_time_saved_sec"


@pytest.fixture
def events() -> Iterator[CompileEvents]:
    """Counts of what jax compiles in the test."""
    made = CompileEvents()
    monitoring.register_event_duration_secs_listener(made.note)
    yield made
    monitoring.unregister_event_duration_listener(made.note)


def function(module: str, name: str) -> Callable[[Any], Any]:
    """A function that jax has not seen, as if a module had defined it."""

    def added(x: Any) -> Any:
        return x + 1

    added.__module__, added.__qualname__ = module, name
    return added


def test_a_compilation_is_counted_with_its_seconds(events: CompileEvents) -> None:
    x = jnp.arange(7)
    before = events.compiled
    assert jax.jit(function("__main__", "mine"))(x).tolist() == [*range(1, 8)]
    assert events.compiled == before + 1
    assert events.compiled_seconds > 0
    assert (events.found, events.saved_seconds, events.packages) == (0, 0.0, {})


def test_functions_of_installed_packages_are_counted_by_package(events: CompileEvents) -> None:
    scaled = function("numpy.linalg", "scaled")
    jitted = jax.jit(scaled)
    for size in (7, 8):  # one function, compiled twice
        jitted(jnp.arange(size))
    jax.jit(functools.partial(function("numpy", "other")))(jnp.arange(7))
    jax.jit(function("json", "of_the_standard_library"))(jnp.arange(7))
    assert {package: [*functions] for package, functions in events.packages.items()} == {
        "numpy": ["numpy.linalg.scaled", "numpy.other"]
    }
    assert sum(events.packages["numpy"].values()) <= events.compiled_seconds


def test_operations_are_no_functions_of_the_package_that_uses_them(events: CompileEvents) -> None:
    names = {"__name__": "numpy.fake", "jnp": jnp}
    exec("def shifted(x): return jnp.roll(x, 3) * 5", names)
    names["shifted"](jnp.arange(23))  # type: ignore[operator]
    assert events.compiled
    assert events.packages == {}


def test_a_compilation_that_jax_finds_is_not_one_that_it_made() -> None:
    events = CompileEvents()
    events.note(FOUND, 2.5)
    events.note(COMPILED, 0.6, fun_name="jit(f)")
    events.note(COMPILED, 3.0, fun_name="jit(g)")
    events.note("/jax/some/other", 7.0)
    assert (events.found, events.saved_seconds) == (1, 2.5)
    assert (events.compiled, events.compiled_seconds) == (1, 3.0)
    events.clear()
    assert (events.found, events.saved_seconds, events.compiled, events.compiled_seconds) == (0, 0.0, 0, 0.0)


def test_what_our_cache_saved_is_less_the_seconds_of_finding(tmp_path: Path) -> None:
    cache, events = CompilationCache(tmp_path), CompileEvents()
    cache.count_found(0.75, 0.25)
    events.note(COMPILED, 0.25)
    assert (events.found, events.saved_seconds, events.compiled) == (1, 0.5, 0)
    events.note(COMPILED, 2.0)
    assert (events.found, events.saved_seconds, events.compiled) == (1, 0.5, 1)
    cache.count_found(0.75, 0.25)
    assert CompileEvents().found == 0  # what was found before is not counted with the next compilation
    events.note(COMPILED, 2.0)
    assert (events.found, events.compiled) == (1, 2)


def test_a_signal_handler_may_compile_while_an_event_is_counted() -> None:
    events = CompileEvents()
    with events._lock:  # as in a thread that counts
        events.note(COMPILED, 1.0)
    assert events.compiled == 1
