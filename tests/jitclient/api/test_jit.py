"""`jit` against `jax.jit`: the same trees, values and types for the same arguments."""

import collections
import copy
import dataclasses
import enum
import functools
import itertools
import os
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import jitclient

pytestmark = pytest.mark.usefixtures("daemon")


class Pair(NamedTuple):
    left: Any
    right: Any


@functools.partial(jax.tree_util.register_dataclass, data_fields=["w", "b"], meta_fields=["name"])
@dataclasses.dataclass
class Layer:
    w: Any
    b: Any
    name: str

    def apply(self, x: Any) -> Any:
        return self.w @ x + self.b


@jax.tree_util.register_pytree_node_class
class Box:
    def __init__(self, content: Any) -> None:
        self.content = content

    def tree_flatten(self) -> Any:
        return (self.content,), ()

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> "Box":
        return cls(*children)


def same(ours: Any, theirs: Any) -> None:
    """The same tree, of equal values, dtypes and weak types."""
    our_leaves, our_tree = jax.tree.flatten(ours)
    their_leaves, their_tree = jax.tree.flatten(theirs)
    assert our_tree == their_tree
    for mine, yours in zip(our_leaves, their_leaves, strict=True):
        assert type(mine) is jitclient.Array
        assert mine.shape == yours.shape
        assert mine.dtype == yours.dtype
        assert mine.weak_type == yours.aval.weak_type
        np.testing.assert_array_equal(np.asarray(mine), np.asarray(yours))


def both(fun: Callable[..., Any], *args: Any, jit_options: dict[str, Any] | None = None, **kwargs: Any) -> Any:
    ours = jitclient.jit(fun, **(jit_options or {}))(*args, **kwargs)
    same(ours, jax.jit(fun, **(jit_options or {}))(*args, **kwargs))
    return ours


F32 = np.arange(6, dtype=np.float32).reshape(2, 3)

ARGUMENTS = {
    "numpy f32": F32,
    "numpy f64": np.linspace(0, 1, 5),
    "numpy i64": np.arange(5),
    "numpy u8": np.arange(5, dtype=np.uint8),
    "numpy bool": np.array([True, False]),
    "numpy c128": np.array([1 + 2j]),
    "bfloat16": np.arange(4).astype(ml_dtypes.bfloat16),
    "float8": np.arange(4).astype(ml_dtypes.float8_e4m3fn),
    "int4": np.arange(4).astype(ml_dtypes.int4),
    "not contiguous": np.arange(12, dtype=np.float32).reshape(3, 4).T[::2],
    "0-d": np.float32(3).reshape(()),
    "empty": np.zeros((0, 3), np.float32),
    "numpy scalar": np.float32(2.5),
    "bool": True,
    "int": 3,
    "negative int": -7,
    "float": 2.5,
    "complex": 1 + 2j,
    "jax array": jnp.arange(4.0),
    "jax weak array": jnp.asarray(2.0) * 1 + jnp.asarray(1),
    "large": np.arange(100_000, dtype=np.float32),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_every_kind_of_array_and_scalar(name: str) -> None:
    def fun(x: Any) -> Any:
        return x, x[None] if jnp.ndim(x) else jnp.reshape(x, (1,))

    both(fun, ARGUMENTS[name])


@pytest.mark.parametrize("name", [n for n in ARGUMENTS if n not in ("int4", "float8")])
def test_arithmetic_promotes_as_in_jax(name: str) -> None:
    both(lambda x: (x + x, x * 2), ARGUMENTS[name])


TREES: dict[str, Any] = {
    "dict": {"b": F32, "a": 1},
    "list": [F32, [F32]],
    "tuple": (F32, ()),
    "none": (None, F32, {"x": None}),
    "namedtuple": Pair(F32, Pair(1.0, None)),
    "ordered dict": collections.OrderedDict(b=F32, a=F32 + 1),
    "defaultdict": collections.defaultdict(list, b=F32, a=F32),
    "int keys": {2: F32, 1: F32 + 1},
    "registered dataclass": Layer(F32, F32 + 1, "first"),
    "registered class": Box([Box(F32), 2]),
    "nothing": (),
}


@pytest.mark.parametrize("name", TREES)
def test_every_kind_of_tree_goes_in_and_comes_out(name: str) -> None:
    both(lambda tree: jax.tree.map(lambda leaf: leaf + 1, tree), TREES[name])


def test_results_are_instances_of_the_callers_own_classes() -> None:
    result = both(lambda layer, x: Layer(layer.w * 2, layer.apply(x), layer.name), Layer(F32, F32[:, 0], "n"), F32[0])
    assert type(result) is Layer
    assert result.name == "n"


def test_a_class_that_the_function_itself_uses_is_the_argument_s_class() -> None:
    def fun(layer: Any) -> Any:
        return layer.w if isinstance(layer, Layer) else layer

    both(fun, Layer(F32, F32, "x"))


def test_a_function_as_a_static_argument_is_part_of_the_program() -> None:
    def apply(function: Any, x: Any) -> Any:
        return function(x)

    jitted = jitclient.jit(apply, static_argnums=0)
    assert jitted(lambda x: x * 2, F32).tolist() == (F32 * 2).tolist()
    assert jitted(lambda x: x * 3, F32).tolist() == (F32 * 3).tolist()
    assert jitted(jnp.negative, F32).tolist() == (-F32).tolist()


def test_decorating_bare_with_keywords_and_as_a_call() -> None:
    @jitclient.jit
    def bare(x: Any) -> Any:
        "Add one."
        return x + 1

    @jitclient.jit(static_argnums=1)
    def keywords(x: Any, n: int) -> Any:
        return x + n

    called = jitclient.jit(lambda x: x - 1)
    assert (bare(1).item(), keywords(1, 2).item(), called(1).item()) == (2, 3, 0)
    assert bare.__name__ == "bare"
    assert bare.__doc__ == "Add one."
    assert bare.__wrapped__(1) == 2


@pytest.mark.cpu(reason="calls of values are queued elsewhere, too")
def test_handles_are_arguments_and_stay_on_the_daemon(counts: Callable[..., dict[str, Any]]) -> None:
    add = jitclient.jit(lambda x, y: x + y)
    total = add(np.zeros(50_000, np.float32), 1.0)
    for _ in range(5):
        total = add(total, 1.0)
    assert counts()["arrays"] >= 1
    np.testing.assert_array_equal(np.asarray(total), np.full(50_000, 6.0, np.float32))


def test_donating_one_tree_of_several_arguments() -> None:
    fun = jitclient.jit(
        lambda a, state, n, b: ({k: v + n for k, v in state.items()}, a + b), donate_argnames="state", static_argnums=2
    )
    a, b = jitclient.device_put(F32), jitclient.device_put(F32)
    state = jitclient.device_put({"x": F32, "y": F32 + 1})
    new, _ = fun(a, state, 2, b)
    assert [leaf.is_deleted() for leaf in (a, b, state["x"], state["y"])] == [False, False, True, True]
    assert new["y"].tolist() == (F32 + 3).tolist()


def test_keys_that_were_results_are_arguments() -> None:
    keys = jitclient.jit(lambda: jax.random.split(jax.random.key(7), 3))()
    assert str(keys.dtype) == "key<fry>"
    ours = jitclient.jit(lambda keys: jax.vmap(jax.random.bits)(keys))(keys)
    assert ours.tolist() == jax.vmap(jax.random.bits)(jax.random.split(jax.random.key(7), 3)).tolist()


@pytest.mark.parametrize("x64", [False, True])
def test_settings_travel_with_the_call(x64: bool) -> None:
    with jax.enable_x64(x64):
        both(lambda x: (x, jnp.arange(3), x.sum()), np.linspace(0, 1, 5))


def test_settings_of_one_call_do_not_reach_another() -> None:
    fun = jitclient.jit(lambda x: x * 1.0)
    with jax.enable_x64(True):
        assert fun(np.arange(3)).dtype == np.float64
    assert fun(np.arange(3)).dtype == np.float32


def test_other_settings_decide_too() -> None:
    def fun() -> Any:
        return jax.random.key_data(jax.random.key(0))

    ours = jitclient.jit(fun)
    with jax.default_prng_impl("rbg"):
        assert ours().shape == (4,)
    assert ours().shape == (2,)
    with jax.numpy_dtype_promotion("strict"), pytest.raises(Exception, match="no available implicit dtype promotion"):
        jitclient.jit(lambda x, y: x + y)(np.int32(1), np.float32(1))


def test_rebinding_a_global_is_seen_at_the_next_call() -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec("K = 2.0\ndef fun(x): return x * K", namespace)
    fun = jitclient.jit(namespace["fun"])
    assert fun(1.0).item() == 2
    namespace["K"] = 3.0
    assert fun(1.0).item() == 3


@pytest.mark.callbacks
def test_callbacks_happen_in_this_process() -> None:
    happened: list[int] = []

    def back(v: Any) -> Any:
        happened.append(os.getpid())
        return np.asarray(v) * 2

    def fun(x: Any) -> Any:
        return jax.pure_callback(back, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    both(fun, F32)
    assert happened == [os.getpid()] * 2


def test_device_put_and_get() -> None:
    tree = {"a": F32, "b": [1.5, np.arange(3, dtype=np.int32)], "c": np.zeros(70_000, np.float32)}
    put = jitclient.device_put(tree)
    assert all(type(leaf) is jitclient.Array for leaf in jax.tree.leaves(put))
    got = jitclient.device_get(put)
    assert jax.tree.map(lambda a, b: bool((a == b).all()), got, jax.tree.map(np.asarray, tree)) == {
        "a": True,
        "b": [True, True],
        "c": True,
    }
    assert put["b"][0].weak_type
    same_handles = jitclient.device_put(put)
    assert same_handles["a"] is put["a"]


def test_function_key_is_of_the_function_and_not_of_the_wrapper() -> None:
    def fun(x: Any) -> Any:
        return x + 1

    key = jitclient.function_key(fun)
    assert key == jitclient.function_key(jitclient.jit(fun))
    assert key != jitclient.function_key(lambda x: x + 2)


def test_bytes_in_the_other_order_are_refused_as_in_jax() -> None:
    for jit in (jax.jit, jitclient.jit):
        with pytest.raises(TypeError):
            jit(lambda x: x)(np.array([1.0, 2.0], ">f4"))


class Size(enum.IntEnum):
    SMALL = 3


@pytest.mark.parametrize("x64", [False, True])
def test_integers_of_every_sort(x64: bool) -> None:
    with jax.enable_x64(x64):
        both(lambda x: x + 1, Size.SMALL)
        for jit, number in itertools.product((jax.jit, jitclient.jit), (2**63,) if x64 else (2**40, 2**63)):
            with pytest.raises(OverflowError):
                jit(lambda x: x)(number)


def test_inside_a_trace_it_steps_aside_also_without_a_tracer_among_its_arguments() -> None:
    def loss(w: Any) -> Any:
        return jitclient.jit(lambda x: x * w)(np.float32(3)).sum()

    assert float(jax.grad(loss)(2.0)) == 3
    assert float(jax.jit(lambda: jitclient.jit(lambda x: x + 1)(1.0))()) == 2


def test_copies_and_pickles_of_a_handle_do_not_free_it() -> None:
    array = jitclient.device_put(F32)
    for twin in (copy.copy(array), copy.deepcopy(array), pickle.loads(pickle.dumps(array))):
        assert np.asarray(twin).tolist() == F32.tolist()
        del twin
    jitclient.jit(lambda x: x)(1.0)  # carries what was dropped
    assert jitclient.jit(lambda x: x + 1)(array).tolist() == (F32 + 1).tolist()


def test_a_captured_handle_is_its_value() -> None:
    array = jitclient.device_put(F32)
    assert jitclient.jit(lambda x: array * x)(2.0).tolist() == (F32 * 2).tolist()


def test_a_look_in_the_middle_of_a_call_is_an_error_and_no_mix_up() -> None:
    array, value = jitclient.device_put(F32), np.zeros(3, np.float32)
    session = array._session
    with session._guarded(), pytest.raises(jitclient.SessionBusy, match="already in a call"):
        np.asarray(array)
    assert np.asarray(array).tolist() == F32.tolist()
    assert jitclient.jit(lambda x: x)(value).tolist() == [0, 0, 0]
