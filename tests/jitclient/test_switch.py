"""`jitclient.install`: programs that call `jax.jit` and never name jitclient."""

import functools
import sys
import types
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitclient
from jitclient.calls.remote_function import RemoteFunction

PLAIN = jax.jit
X = np.arange(3.0, dtype=np.float32)


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    yield
    jitclient.uninstall()
    assert jax.jit is PLAIN


def triple(x: Any) -> Any:
    return x * 3


def is_ours(function: Any) -> bool:
    return isinstance(function, RemoteFunction)


def namespace(name: str, source: str) -> dict[str, Any]:
    """What a module of that name has, once its source has run."""
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
    assert "jax" not in sys.modules
    import json
    from jax import jit
    import jax
    import numpy as np

    @jax.jit
    def step(x):
        return x * 2

    print(json.dumps([type(jit(lambda x: x)).__name__, type(step).__name__, float(np.asarray(step(1.5)))]))
"""


@pytest.mark.usefixtures("daemon")
def test_it_may_come_before_jax(run_script: Any) -> None:
    assert run_script(PROGRAM.format(install="jitclient.install()")) == ["RemoteFunction", "RemoteFunction", 3.0]
    undone = "jitclient.install(); jitclient.uninstall()"
    assert run_script(PROGRAM.format(install=undone)) == ["PjitFunction", "PjitFunction", 3.0]
