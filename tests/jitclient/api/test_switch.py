"""`jitclient.install`: programs that call `jax.jit` and never name jitclient."""

import functools
import sys
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import equinox
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitclient
from jitclient.calls.remote_function import RemoteFunction
from jitclient.core import clock

PLAIN = jax.jit
COUNTERPARTS = [(jax, "jit", jitclient.jit), (equinox, "filter_jit", jitclient.eqx.filter_jit)]
OTHERS = COUNTERPARTS[1:]
X = np.arange(3.0, dtype=np.float32)


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    before = [getattr(module, name) for module, name, _ in COUNTERPARTS]
    yield
    jitclient.uninstall()
    assert [getattr(module, name) for module, name, _ in COUNTERPARTS] == before


def triple(x: Any) -> Any:
    return x * 3


def is_ours(function: Any) -> bool:
    return isinstance(function, RemoteFunction)


def namespace(name: str, source: str) -> dict[str, Any]:
    """Return the namespace of a module of that name after its source has run."""
    module = types.ModuleType(name)
    exec(source, vars(module))
    return vars(module)


@pytest.mark.usefixtures("daemon")
def test_a_jit_of_the_program_runs_on_the_daemon() -> None:
    jitclient.install()
    assert isinstance(jax.jit(triple)(X), jitclient.Array)
    np.testing.assert_array_equal(jax.jit(triple)(X), X * 3)


@pytest.mark.parametrize(
    "made",
    [
        "jax.jit(f)",
        "jax.jit(static_argnums=0)(f)",
        "functools.partial(jax.jit, static_argnums=0)(f)",
        "bound(f)",
        "partly(f)",
    ],
)
def test_all_ways_to_name_it(made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here = types.ModuleType("of_the_program")
    vars(here).update(jax=jax, functools=functools, f=triple, bound=jax.jit)
    vars(here).update(partly=functools.partial(jax.jit, static_argnums=0))
    before = {name: vars(here)[name] for name in ("bound", "partly")}
    monkeypatch.setitem(sys.modules, "of_the_program", here)
    with jitclient.install():
        assert is_ours(eval(made, vars(here)))
    assert not is_ours(eval(made, vars(here)))
    assert {name: vars(here)[name] for name in before} == before


def test_a_partial_keeps_what_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    here = types.ModuleType("of_the_program")
    here.jit = functools.partial(jax.jit, triple, donate_argnums=0)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "of_the_program", here)
    with jitclient.install():
        assert here.jit().__wrapped__ is triple
        assert here.jit().__reduce__()[1][1]["donate_argnums"] == (0,)


def test_jits_of_installed_packages_stay_theirs_unless_they_are_named() -> None:
    source = "import jax; made = jax.jit(lambda x: x + 1)"
    jitclient.install()
    assert not is_ours(namespace("optax.somewhere", source)["made"])
    assert is_ours(namespace("somewhere.of_the_users", source)["made"])
    jitclient.install(packages=["optax"])
    assert is_ours(namespace("optax.somewhere", source)["made"])
    assert not is_ours(namespace("flax.somewhere", source)["made"])


def test_one_name_is_not_taken_for_its_letters() -> None:
    with pytest.raises(TypeError, match="optax"):
        jitclient.install(packages="optax")


def test_a_keyword_that_only_jax_knows_is_answered_by_jax() -> None:
    jitclient.install()
    with pytest.raises(TypeError, match="no_such_keyword"):
        jax.jit(triple, no_such_keyword=1)


def test_blocks_may_end_in_any_order() -> None:
    outer, inner = jitclient.install(), jitclient.install(packages=["optax"])
    outer.__exit__()
    assert is_ours(jax.jit(triple))
    inner.__exit__()
    assert jax.jit is PLAIN
    inner.__exit__()
    outer.__exit__()


def test_a_block_that_ends_after_uninstall_does_nothing() -> None:
    with jitclient.install():
        jitclient.uninstall()
        assert jax.jit is PLAIN


def test_what_the_program_bound_meanwhile_stays() -> None:
    def another(fun: Any) -> Any:
        return fun

    jitclient.install()
    jax.jit = another
    jitclient.uninstall()
    assert jax.jit is another
    jax.jit = PLAIN


def test_it_looks_like_the_one_of_jax() -> None:
    jitclient.install()
    assert (jax.jit.__module__, jax.jit.__qualname__) == (PLAIN.__module__, PLAIN.__qualname__)


@pytest.mark.parametrize(("module", "name", "ours"), OTHERS)
def test_libraries_that_jit_have_counterparts(
    module: Any, name: str, ours: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = getattr(module, name)
    here = types.ModuleType("of_the_program")
    vars(here).update(library=module, bound=own, partly=functools.partial(own), functools=functools, f=triple)
    monkeypatch.setitem(sys.modules, "of_the_program", here)
    ways = [f"library.{name}(f)", f"functools.partial(library.{name})(f)", "bound(f)", "partly(f)"]
    with jitclient.install():
        assert {type(eval(way, vars(here))) for way in ways} == {type(ours(triple))}
        source = f"import {module.__name__} as library; made = library.{name}(lambda x: x + 1)"
        assert type(namespace("diffrax.somewhere", source)["made"]) is type(own(triple))
    assert {type(eval(way, vars(here))) for way in ways} == {type(own(triple))}


@pytest.mark.parametrize(("module", "name", "ours"), COUNTERPARTS)
def test_captures_name_them_as_they_name_the_librarys(module: Any, name: str, ours: Any) -> None:
    source = f"from {module.__name__} import {name} as bound\ndef f(x): return bound(lambda y: y)(x)"
    key = jitclient.function_key(namespace("of_the_program", source)["f"])
    with jitclient.install():
        assert jitclient.function_key(namespace("of_the_program", source)["f"]) == key


@pytest.mark.usefixtures("daemon")
def test_inside_transformations_it_is_as_in_jax() -> None:
    jitclient.install()
    double = jax.jit(lambda x: x * 2)
    assert float(jax.grad(lambda x: double(x) ** 2)(3.0)) == 24.0
    assert jax.vmap(double)(jnp.arange(3.0)).tolist() == [0.0, 2.0, 4.0]


@pytest.mark.usefixtures("daemon")
def test_a_jit_in_the_body_of_a_jitted_function_is_the_daemons_own() -> None:
    def whole(x: Any) -> Any:
        return jax.jit(triple)(x) + 1

    key = jitclient.function_key(whole)
    with jitclient.install():
        assert jitclient.function_key(whole) == key
        np.testing.assert_array_equal(jax.jit(whole)(X), X * 3 + 1)


PROGRAM = """
    import sys
    import jitclient
    {install}
    assert not {{"jax", "equinox", "flax"}} & sys.modules.keys()
    import json
    from equinox import filter_jit
    from jax import jit
    import jax
    import numpy as np

    @jax.jit
    def step(x):
        return x * 2

    made = jit(lambda x: x), step, filter_jit(lambda x: x)
    print(json.dumps([[type(one).__name__ for one in made], float(np.asarray(step(1.5)))]))
"""


@pytest.mark.usefixtures("daemon")
def test_it_may_come_before_jax_and_imports_nothing(run_script: Any) -> None:
    ours = run_script(PROGRAM.format(install="jitclient.install()"))
    assert ours == [["RemoteFunction", "RemoteFunction", "_FilterJitted"], 3.0]
    assert run_script(PROGRAM.format(install="jitclient.install(); jitclient.uninstall(); jitclient.install()")) == ours
    theirs = run_script(PROGRAM.format(install="jitclient.install(); jitclient.uninstall()"))
    assert theirs == [["PjitFunction", "PjitFunction", "_JitWrapper"], 3.0]


@pytest.mark.usefixtures("daemon")
def test_a_clock_that_the_program_replaces_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by tests, for instance with a mock of as many values as the tested function asks for."""
    asked_by: list[str] = []

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def replacement(*arguments: Any) -> Any:
            asked_by.append(sys._getframe(1).f_globals["__name__"])
            return function(*arguments)

        return replacement

    for name in ("time", "monotonic", "perf_counter", "sleep", "thread_time", "time_ns", "perf_counter_ns"):
        monkeypatch.setattr(time, name, counted(getattr(time, name)))
    with jitclient.install():
        step = jax.jit(lambda x, scale: x * scale, static_argnums=1)
        for scale in (2.0, 2.0, 3.0):
            np.testing.assert_array_equal(step(X, scale), X * scale)
    time.monotonic()
    assert asked_by[-1] == __name__
    assert clock.monotonic is not time.monotonic
    assert [name for name in asked_by if name.startswith("jitclient")] == []
