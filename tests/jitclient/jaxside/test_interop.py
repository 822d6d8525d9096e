"""JAX's own functions in this process take arrays of the daemon's, however late jax is loaded."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax

import jitclient
from jitclient.jaxside import interop

pytestmark = pytest.mark.usefixtures("daemon")

F32 = np.array([[0.5, -1.25, 2.0], [3.0, 0.25, -0.5]], np.float32)


def plain(x: Any) -> Any:
    return jnp.sum(jnp.sin(x) * x)


jitted = jitclient.jit(plain)

USES: dict[str, Callable[[Any, Any], Any]] = {
    "jnp": lambda f, x: (jnp.sin(x), jnp.stack([x, x]), jnp.where(x > 0, x, 0), jnp.linalg.norm(x), jnp.asarray(x)),
    "lax": lambda f, x: (lax.add(x, x), lax.dot(x, x.T), lax.dynamic_slice(x, (0, 1), (1, 2))),
    "operators with arrays of jax's": lambda f, x: (jnp.ones(3) + x, x * jnp.ones(3), jnp.arange(9)[x.astype(int)]),
    "at of jax's": lambda f, x: jnp.zeros((2, 3)).at[x.astype(int)[0, 0]].set(x[1]),
    "jit": lambda f, x: jax.jit(lambda y: f(y) + y)(x),
    "jit, closed over": lambda f, x: jax.jit(lambda y: f(x) + x * y)(2.0),
    "jit, keyword and tree": lambda f, x: jax.jit(lambda *, tree: tree["a"] + tree["b"][0])(tree={"a": x, "b": [x]}),
    "grad": lambda f, x: jax.grad(f)(x),
    "grad, closed over": lambda f, x: jax.grad(lambda s: f(x * s))(2.0),
    "value_and_grad": lambda f, x: jax.value_and_grad(f)(x),
    "vmap": lambda f, x: jax.vmap(f)(x),
    "vmap, closed over": lambda f, x: jax.vmap(lambda s: f(x * s))(jnp.arange(3.0)),
    "jvp": lambda f, x: jax.jvp(f, (x,), (x,)),
    "jvp, closed over": lambda f, x: jax.jvp(lambda s: f(x * s), (2.0,), (1.0,)),
    "vjp": lambda f, x: jax.vjp(f, x)[1](1.0),
    "linearize": lambda f, x: jax.linearize(f, x)[1](x),
    "linearize, closed over": lambda f, x: jax.linearize(lambda s: f(x * s), 2.0)[1](1.0),
    "checkpoint": lambda f, x: jax.grad(jax.checkpoint(f))(x),
    "checkpoint, closed over": lambda f, x: jax.grad(jax.checkpoint(lambda s: f(x * s)))(2.0),
    "hessian": lambda f, x: jax.hessian(f)(x),
    "jacfwd": lambda f, x: jax.jacfwd(f)(x),
    "scan": lambda f, x: lax.scan(lambda c, row: (c + f(row), row * 2), jnp.float32(0), x),
    "scan, closed over": lambda f, x: lax.scan(lambda c, s: (c + f(x * s), s), jnp.float32(0), jnp.arange(3.0)),
    "cond": lambda f, x: lax.cond(x[0, 0] > 0, f, lambda y: -f(y), x),
    "cond, closed over": lambda f, x: lax.cond(True, lambda: f(x), lambda: x[0, 0]),
    "while": lambda f, x: lax.while_loop(lambda y: jnp.sum(y) < 100, lambda y: y * y + f(x) + 9, x),
    "fori": lambda f, x: lax.fori_loop(0, 3, lambda i, y: y + x[i % 2] + f(x), x),
    "map": lambda f, x: lax.map(f, x),
    "eval_shape": lambda f, x: jax.eval_shape(f, x),
    "make_jaxpr": lambda f, x: jax.make_jaxpr(f)(x).out_avals,
    "tree.map": lambda f, x: jax.tree.map(lambda leaf: f(leaf) + leaf, {"a": x, "b": (x, None)}),
    "device_put": lambda f, x: jax.device_put({"a": x}),
    "device_get": lambda f, x: jax.device_get([x]),
    "block_until_ready": lambda f, x: jax.block_until_ready([x]),
    "pure_callback": lambda f, x: jax.pure_callback(lambda v: np.asarray(v) * 2, jax.typeof(x), x),
    "custom_vjp": lambda f, x: jax.grad(custom(f))(x),
    "ensure_compile_time_eval": lambda f, x: jax.jit(lambda s: _eager(x) * s)(2.0),
    "optax": lambda f, x: optimised(f, x),
    "equinox": lambda f, x: eqx.filter_jit(lambda tree: tree["x"] * tree["n"])({"x": x, "n": 3}),
    "equinox's grad": lambda f, x: eqx.filter_grad(f)(x),
    "dlpack": lambda f, x: jnp.from_dlpack(x),
}


def _eager(x: Any) -> Any:
    with jax.ensure_compile_time_eval():
        return jnp.float32(3) if bool(x.sum() > 0) else jnp.float32(4)


def custom(f: Any) -> Any:
    rule = jax.custom_vjp(f)
    rule.defvjp(lambda x: (f(x), x), lambda x, g: (x * g * 2,))
    return rule


def optimised(f: Any, x: Any) -> Any:
    optimiser = optax.adam(0.1)
    state = optimiser.init({"w": x})
    updates, _ = optimiser.update(jax.grad(lambda p: f(p["w"]))({"w": x}), state, {"w": x})
    return optax.apply_updates({"w": x}, updates)


FUNCTIONS = {"a plain function": (plain, plain), "a jitclient.jit function": (jitted, jax.jit(plain))}


@pytest.mark.parametrize(
    "function", ["a plain function", pytest.param("a jitclient.jit function", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("use", USES)
def test_it_is_as_with_an_array_of_jax_s_own(use: str, function: str) -> None:
    ours, theirs = FUNCTIONS[function]
    same(USES[use](ours, jitclient.device_put(F32)), USES[use](theirs, jnp.asarray(F32)))


def same(ours: Any, theirs: Any) -> None:
    our_leaves, our_tree = jax.tree.flatten(ours)
    their_leaves, their_tree = jax.tree.flatten(theirs)
    assert our_tree == their_tree
    for mine, yours in zip(our_leaves, their_leaves, strict=True):
        assert (mine.shape, mine.dtype) == (yours.shape, yours.dtype)
        assert getattr(mine, "weak_type", False) == getattr(yours, "weak_type", False)
        if isinstance(yours, (jax.Array, np.ndarray)):
            assert np.asarray(mine).tobytes() == np.asarray(yours).tobytes()


def test_predicates_take_it_for_an_array() -> None:
    x = jitclient.device_put(F32)
    assert isinstance(x, jax.Array)
    assert isinstance(x, jitclient.Array)
    assert not isinstance(x, jax.core.Tracer)
    assert eqx.is_array(x)
    assert eqx.is_inexact_array(x)
    assert jax.typeof(x) == jax.typeof(jnp.asarray(F32))
    assert jnp.isscalar(jitclient.device_put(1.0))


def test_typed_keys() -> None:
    ours, theirs = jitclient.jit(lambda: jax.random.key(3))(), jax.random.key(3)
    for use in (
        lambda key: jax.random.normal(key, (3,)),
        lambda key: jax.random.key_data(jax.random.split(key)),
        lambda key: jax.random.bits(jax.random.fold_in(key, 1)),
        lambda key: jax.vmap(jax.random.bits)(jax.random.split(key, 3)),
        lambda key: jax.jit(lambda: jax.random.bits(key))(),
        lambda key: jax.random.permutation(key, 5),
    ):
        same(use(ours), use(theirs))


def test_weak_types_are_kept_in_every_shape() -> None:
    theirs = jnp.broadcast_to(2.0, (3,))
    ours = jitclient.device_put(theirs)
    assert ours.weak_type
    assert theirs.weak_type
    same(
        jax.jit(lambda x: x * jnp.ones(3, jnp.bfloat16))(ours), jax.jit(lambda x: x * jnp.ones(3, jnp.bfloat16))(theirs)
    )


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype")  # JAX's own, here and there
def test_wide_arrays_stay_wide_where_64_bits_are_off() -> None:
    with jax.enable_x64(True):
        wide = jnp.arange(3.0)
        held = jitclient.device_put(wide)
    for jit, arguments in ((jax.jit, [wide]), (jitclient.jit, [wide, held])):
        for argument in arguments:
            same(jit(lambda x: (x, x * 2))(argument), jax.jit(lambda x: (x, x * 2))(wide))
    same(held + 1, wide + 1)
    same(jnp.sin(held), jnp.sin(wide))


def test_inside_a_trace_an_operation_is_part_of_it(counts: Callable[..., dict[str, Any]]) -> None:
    x = jitclient.device_put(F32)
    before = counts()["calls"]
    jaxpr = jax.make_jaxpr(lambda s: (x + s, s + x, x[0] * s, x.at[0].set(s), x.sum() * s, x.T, [*x]))(2.0)
    assert counts()["calls"] == before
    assert jaxpr.out_avals[0].shape == (2, 3)


LATE = """
    import json, sys
    import numpy as np, jitclient
    x = jitclient.device_put(np.arange(3, dtype=np.float32))
    assert "jax" not in sys.modules
    import jax
    {use}
    print(json.dumps([np.asarray(y).tolist(), isinstance(x, jax.Array), "exec_module" in vars(jax.__spec__.loader)]))
"""


@pytest.mark.parametrize(
    "use",
    [
        "y = jax.jit(lambda v: v + 1)(x)",
        "y = jax.numpy.add(x, 1)",
        "y = jax.lax.add(x, np.float32(1))",
        "y = jax.vmap(lambda v: v + 1)(x)",
        "y = jax.jvp(lambda v: v + 1, (x,), (x,))[0]",
        "y = jax.device_put(x) + 1",
        "y = jax.lax.scan(lambda c, v: (c, v + 1), 0, x)[1]",
    ],
)
def test_jax_that_is_loaded_after_the_array_was_made(run_script: Callable[..., Any], use: str) -> None:
    assert run_script(LATE.format(use=use)) == [[1, 2, 3], True, False]


def test_a_jax_that_cannot_be_told(run_script: Callable[..., Any]) -> None:
    done = run_script(
        """
        import json, warnings
        import numpy as np
        import jax
        from jax._src.interpreters import pxla
        del pxla.shard_arg_handlers  # as another version might
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            import jitclient
            x = jitclient.device_put(np.arange(3, dtype=np.float32))
        try:
            jax.numpy.sin(x)
        except TypeError as error:
            text = str(error)
        after = jitclient.jit(lambda v: v + 1)(x) + x
        told = [str(w.message) for w in caught if "jitclient.Array" in str(w.message)]
        print(json.dumps([after.tolist(), isinstance(x, jax.Array), told, text]))
        """
    )
    result, is_array, (warning,), error = done
    assert result == [1, 3, 5]
    assert not is_array
    assert "np.asarray(array)" in warning
    assert "not a valid JAX type" in error or "requires ndarray or scalar arguments" in error


def test_a_captured_array_makes_the_same_key_with_and_without_jax(run_script: Callable[..., Any]) -> None:
    source = """
        import json, sys
        {first}
        import numpy as np, jitclient
        x = jitclient.device_put(2.5)
        f = lambda v: x * v
        print(json.dumps([jitclient.function_key(f), jitclient.jit(f)(np.float16(2)).dtype.name, "jax" in sys.modules]))
    """
    off = {"JITSERVER_VERIFY": "off"}  # a trace would import jax
    runs = [run_script(source.format(first=first), env=off) for first in ("", "import jax")]
    assert [run[1:] for run in runs] == [["float16", False], ["float16", True]]
    assert runs[0][0] == runs[1][0]
    assert (jnp.asarray(2.5) * np.float16(2)).dtype == np.float16


def test_the_class_is_ours_to_whoever_asks_for_the_type() -> None:
    x = jitclient.device_put(1.0)
    assert type(x) is jitclient.Array
    assert functools.reduce(lambda a, b: a + b, [x, x, x]).item() == 3


def test_an_array_is_made_weakly_typed() -> None:
    for dtype in ("bool", "int4", "int8", "uint32", "bfloat16", "float8_e4m3fn", "float32", "complex64"):
        strong = jnp.arange(5).astype(dtype)
        weak = interop.weakly_typed(strong)
        assert jax.typeof(weak) == jax.typeof(strong).update(weak_type=True)
        assert np.asarray(weak).tobytes() == np.asarray(strong).tobytes()
