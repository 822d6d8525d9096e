"""Stages one at a time: lowering and compiling happen on the daemon, nothing has run, and other kinds are refused."""

import copy
import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import serialize_executable

import jitclient

pytestmark = pytest.mark.usefixtures("daemon")

X = np.arange(6, dtype=np.float32).reshape(2, 3)


class Duck:
    """As little as JAX asks of an argument that is only lowered for."""

    shape = (2, 3)
    dtype = np.dtype("float32")


def scaled(x: Any, by: Any, how: str = "mul") -> Any:
    return {"out": x * by if how == "mul" else x + by}


@pytest.mark.parametrize("like", [X, jax.ShapeDtypeStruct((2, 3), "float32"), Duck()], ids=["array", "struct", "duck"])
def test_compiling_runs_nothing_and_is_what_a_call_needs(like: Any, counts: Callable[..., Any]) -> None:
    def fun(x: Any, by: Any) -> Any:
        return scaled(x, by)["out"] + len(type(like).__name__)

    jitted = jitclient.jit(fun)
    before = counts()
    compiled = jitted.lower(like, 2.0).compile()
    made = counts()
    assert (made["traces"] - before["traces"], made["calls"] - before["calls"]) == (1, 0)
    expected = jax.jit(fun)(X, 2.0).tolist()
    assert compiled(X, 2.0).tolist() == expected
    assert jitted(X, 2.0).tolist() == expected
    assert counts()["traces"] == made["traces"]


def test_static_arguments_are_left_out_of_the_call() -> None:
    for jit in (jax.jit, jitclient.jit):
        compiled = jit(scaled, static_argnames="how").lower(X, 2.0, how="add").compile()
        assert compiled(X, 2.0)["out"].tolist() == (X + 2).tolist()


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [
        ((X, X), {}, "pytree"),
        ((X[:1],), {}, "types"),
        ((X.astype(np.int32),), {}, "types"),
        ((), {"x": X}, "pytree"),
        (([X],), {}, "pytree"),
    ],
    ids=["one more", "shape", "dtype", "keyword", "tree"],
)
def test_arguments_of_another_kind_are_refused_as_in_jax(args: Any, kwargs: Any, text: str) -> None:
    for jit in (jax.jit, jitclient.jit):
        compiled = jit(lambda x: x + 1).lower(X).compile()
        with pytest.raises(TypeError, match=f"Argument {text} differ|input {text} does not match"):
            compiled(*args, **kwargs)


def test_what_is_compiled_cannot_be_transformed() -> None:
    for jit in (jax.jit, jitclient.jit):
        compiled = jit(lambda x: x * 2).lower(1.0).compile()
        with pytest.raises(TypeError, match="Cannot apply JAX transformations"):
            jax.grad(compiled)(1.0)


def test_what_is_compiled_stays_what_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "FACTOR", 2.0)
    jitted = jitclient.jit(lambda x: x * FACTOR)  # type: ignore[name-defined]  # noqa: F821
    compiled = jitted.lower(X).compile()
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    assert compiled(X).tolist() == (X * 2).tolist()
    assert jitted(X).tolist() == (X * 3).tolist()


def test_results_can_be_arguments_of_what_is_lowered() -> None:
    jitted = jitclient.jit(lambda x: x + 1)
    handle = jitted(X)
    assert jitted.lower(handle).compile()(handle).tolist() == (X + 2).tolist()
    assert jitted.eval_shape(handle) == jax.ShapeDtypeStruct((2, 3), "float32")


def test_stages_have_all_attributes_of_jaxs() -> None:
    traced = jitclient.jit(scaled, static_argnames="how").trace(X, 2.0)
    lowered = traced.lower()
    compiled = copy.copy(lowered.compile())
    for ours, kind in ((traced, jax.stages.Traced), (lowered, jax.stages.Lowered), (compiled, jax.stages.Compiled)):
        assert isinstance(ours, kind)
        assert [name for name in dir(kind) if not name.startswith("__") and not hasattr(ours, name)] == []
        assert set(dir(kind)) <= set(dir(ours))
        assert not hasattr(ours, "unknown")
    loaded = serialize_executable.deserialize_and_load(*serialize_executable.serialize(compiled))
    assert loaded(X, 2.0)["out"].tolist() == compiled(X, 2.0)["out"].tolist()
    assert jitclient.jit(scaled).__signature__ == inspect.signature(scaled)


@pytest.mark.cpu(reason="the platform in tests/other_platform counts no operations")
def test_text_and_analysis() -> None:
    def fun(x: Any) -> Any:
        return jnp.sin(x) @ x.T

    lowered, theirs = jitclient.jit(fun).lower(X), jax.jit(fun).lower(X)
    assert lowered.as_text() == theirs.as_text()
    assert lowered.out_info == theirs.out_info
    assert lowered.in_tree == theirs.in_tree
    assert lowered.cost_analysis() == theirs.cost_analysis()
    compiled, theirs = lowered.compile(), theirs.compile()
    assert "dot" in compiled.as_text()
    assert compiled.out_info.shape == theirs.out_info.shape
    assert compiled.out_info.dtype == theirs.out_info.dtype
    assert compiled.in_tree == theirs.in_tree
    assert compiled.cost_analysis()["flops"] == theirs.cost_analysis()["flops"]
    assert compiled.memory_analysis().output_size_in_bytes == theirs.memory_analysis().output_size_in_bytes
    with pytest.raises(AttributeError, match="nonsense"):
        compiled.nonsense


def test_tracing_shows_the_jaxpr() -> None:
    def fun(x: Any, how: str) -> Any:
        return jnp.sin(x) if how == "sin" else x

    ours, theirs = (jit(fun, static_argnums=1).trace(X, "sin") for jit in (jitclient.jit, jax.jit))
    assert str(ours.jaxpr) == str(theirs.jaxpr)
    assert ours.lower().compile()(X).tolist() == theirs.lower().compile()(X).tolist()


def test_eval_shape_keeps_weak_types_and_touches_no_device(counts: Callable[..., Any]) -> None:
    before = counts()
    for args in ((X, 2.0), (1, 2.0), (jax.ShapeDtypeStruct((4,), "int32"), 1)):
        ours, theirs = (jit(scaled).eval_shape(*args) for jit in (jitclient.jit, jax.jit))
        assert ours == theirs
        assert ours["out"].weak_type == theirs["out"].weak_type
        assert jax.eval_shape(jitclient.jit(scaled), *args) == theirs
        text = str(jax.make_jaxpr(jax.jit(scaled))(*args))
        assert str(jax.make_jaxpr(jitclient.jit(scaled))(*args)) == text
    assert counts()["calls"] == before["calls"]


def test_options_of_the_compiler_belong_to_the_program(counts: Callable[..., Any]) -> None:
    lowered = jitclient.jit(lambda x: x * 3 + 1).lower(X)
    options = {"xla_embed_ir_in_executable": True}
    before = counts()["compiles"]
    for given in (None, options, options):
        assert lowered.compile(given)(X).tolist() == (X * 3 + 1).tolist()
    assert counts()["compiles"] == before + 2
    for jit in (jax.jit, jitclient.jit):
        with pytest.raises(jax.errors.JaxRuntimeError, match="No such compile option"):
            jit(lambda x: x + 1).lower(X).compile({"invalid_key": "invalid_value"})


def test_what_the_function_raises_comes_when_it_is_compiled() -> None:
    lowered = jitclient.jit(lambda x: x @ np.ones(5)).lower(X)
    with pytest.raises(TypeError, match="dot_general"):
        lowered.compile()


def test_methods_and_partials_are_lowered_too() -> None:
    class Model:
        w = 3.0

        @functools.partial(jitclient.jit, static_argnums=0)
        def apply(self, x: Any) -> Any:
            return x * self.w

    model = Model()
    assert Model.apply.lower(model, X).compile()(X).tolist() == (X * 3).tolist()
    partial = functools.partial(jitclient.jit(scaled), by=3.0)
    assert jitclient.jit(partial).lower(X).compile()(X)["out"].tolist() == (X * 3).tolist()


def test_a_program_that_its_daemon_lost_is_made_again_unless_it_would_be_another(own: Any, tmp_path: Path) -> None:
    packages = tmp_path / "site-packages"
    packages.mkdir()
    (packages / "rates.py").write_text("rate = 5\n\ndef rated(x):\n    return x * rate\n")
    env = {
        "PYTHONPATH": f"{packages}:{os.environ.get('PYTHONPATH', '')}",
        "JITSERVER_CACHE_DIR": str(tmp_path / "cache"),
    }
    program = """
        import json, subprocess, sys, numpy as np, jitclient, rates
        x = np.float32(1)
        both = [jitclient.jit(f).lower(x).compile() for f in (lambda x: x + 1, lambda x: rates.rated(x))]
        found = [float(compiled(x)) for compiled in both]
        rates.rate = 7
        subprocess.run([sys.executable, "-P", "-m", "jitserver", "restart"], check=True, capture_output=True)
        found.append(float(both[0](x + 1)))
        try:
            found.append(float(both[1](x)))
        except jitclient.DaemonLost as error:
            found.append(str(error).partition(",")[0])
        subprocess.run([sys.executable, "-P", "-m", "jitserver", "stop"], check=True, capture_output=True)
        print(json.dumps(found))
    """
    for last in (5, "<lambda> has changed"):  # the first process has traced the function before the change
        with own.serving(**env):
            assert own.run(program, JITSERVER_AUTOSTART="1", **env) == [2, 5, 3, last]
