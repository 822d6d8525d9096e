"""Calls with shardings, under jit of JAX's and of ours, in a process with eight devices; prints where they differ."""

import functools
import json
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

import jitclient

MESH = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto, AxisType.Auto))
EXPLICIT = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit, AxisType.Explicit))
ROWS, COLUMNS, WHOLE = NamedSharding(MESH, P("x")), NamedSharding(MESH, P(None, "y")), NamedSharding(MESH, P())
BOTH = NamedSharding(MESH, P(("x", "y")))
SECOND = SingleDeviceSharding(jax.devices()[1])
X = np.arange(64, dtype=np.float32).reshape(8, 8)
CASES: dict[str, Callable[[Any], Any]] = {}


def case(fun: Callable[[Any], Any]) -> Callable[[Any], Any]:
    CASES[fun.__name__] = fun
    return fun


def plain(x: Any, y: Any) -> Any:
    return {"sum": x + y, "product": [x @ y, jnp.sum(x)]}


@case
def inputs_by_argument(jit: Any) -> Any:
    return jit(plain, in_shardings=(ROWS, COLUMNS))(X, X)


@case
def one_for_all(jit: Any) -> Any:
    return jit(plain, in_shardings=ROWS, out_shardings=WHOLE)(X, X)


@case
def a_list_and_none(jit: Any) -> Any:
    return jit(plain, in_shardings=[ROWS, None])(X, X)


@case
def inputs_by_prefix(jit: Any) -> Any:
    return jit(lambda tree, y: plain(tree["a"] + tree["b"], y), in_shardings=({"a": ROWS, "b": COLUMNS}, BOTH))(
        {"a": X, "b": X}, X
    )


@case
def outputs_by_prefix(jit: Any) -> Any:
    return jit(plain, out_shardings={"sum": COLUMNS, "product": WHOLE})(X, X)


@case
def outputs_with_none(jit: Any) -> Any:
    return jit(plain, in_shardings=(ROWS, ROWS), out_shardings={"sum": COLUMNS, "product": [None, None]})(X, X)


@case
def statics_stand_aside(jit: Any) -> Any:
    fun = jit(lambda how, x, y: plain(x, y)[how], static_argnums=0, in_shardings=(ROWS, WHOLE))
    return fun("sum", X, X)


@case
def partition_specs_under_a_mesh(jit: Any) -> Any:
    with jax.set_mesh(MESH):
        return jit(plain, in_shardings=(P("x"), P(None, "y")), out_shardings=P())(X, X)


@case
def sharded_arguments(jit: Any) -> Any:
    return jit(plain)(jax.device_put(X, ROWS), jax.device_put(X, COLUMNS))


@case
def results_are_arguments(jit: Any) -> Any:
    first = jit(plain, in_shardings=(ROWS, COLUMNS), out_shardings={"sum": ROWS, "product": WHOLE})(X, X)["sum"]
    return jit(lambda x, y: x @ y)(first, X), jit(lambda x: x * 2)(first)


@case
def unplaced_results_go_anywhere(jit: Any) -> Any:
    first = jit(lambda x: x + 1)(X)
    return jit(plain, in_shardings=(ROWS, COLUMNS))(first, first), jit(lambda x: x, out_shardings=SECOND)(first)


@case
def donated_and_sharded(jit: Any) -> Any:
    first = jit(lambda x: x + 1, out_shardings=ROWS)(X)
    second = jit(lambda x: x * 2, donate_argnums=0)(first)
    assert first.is_deleted()
    return second


@case
def constraints_inside(jit: Any) -> Any:
    return jit(lambda x: jax.lax.with_sharding_constraint(x * 2, ROWS))(X)


@case
def constraints_by_name_inside(jit: Any) -> Any:
    with jax.set_mesh(MESH):
        return jit(lambda x: jax.lax.with_sharding_constraint(x * 2, P("x", "y")))(X)


@case
def block_of_a_mesh(jit: Any) -> Any:
    constrained = jit(lambda x: jax.lax.with_sharding_constraint(x * 2, P("x", "y")))
    with MESH:
        first = constrained(X)
    with jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 4), ("x", "y")), MESH:
        return first, constrained(X), jit(plain)(X, first)


@case
def mesh_of_one_device(jit: Any) -> Any:
    one = jax.make_mesh((1,), ("x",), axis_types=(AxisType.Auto,))
    with jax.set_mesh(one):
        first = jit(lambda x: x + 1)(X)
    return (
        first,
        jit(lambda x: jax.lax.with_sharding_constraint(x, NamedSharding(one, P("x"))))(X),
        jit(plain)(first, X),
    )


@case
def wider_than_new_ones(jit: Any) -> Any:
    with jax.enable_x64(True):
        x = jax.device_put(X.astype("float64") + 1e-12, ROWS)
        made = jit(lambda x: x * 2)(x)
        second = jax.device_put(made, SECOND)
    return jit(lambda x: (x, x * 2))(x), jit(lambda x: (x, x + 1))(made), jit(lambda x: x)(second)


@case
def shard_map_inside(jit: Any) -> Any:
    @functools.partial(jax.shard_map, mesh=MESH, in_specs=P("x"), out_specs=P())
    def total(x: Any) -> Any:
        return jax.lax.psum(jnp.sum(x, axis=0), "x")

    return jit(lambda x: total(x) + 1)(X)


@case
def the_mesh_is_seen_inside(jit: Any) -> Any:
    seen = jit(lambda x: x * (1 + len(jax.sharding.get_abstract_mesh().axis_names)))
    before = seen(X)
    with jax.set_mesh(MESH):
        within = seen(X)
    return before, within, seen(X)


@case
def explicit_axes(jit: Any) -> Any:
    with jax.set_mesh(EXPLICIT):
        x = jax.device_put(X, P("x", None))
        return jit(lambda x: (x + 1, jax.sharding.reshard(x, P(None, "y"))))(x)


@case
def default_device(jit: Any) -> Any:
    with jax.default_device(jax.devices()[3]):
        first = jit(lambda x: x + jnp.arange(8.0))(X)
        second = jit(lambda x: x * 2)(first)
    assert not first.committed
    return first, second, jit(lambda x: x + 1)(second), jit(lambda x, y: x + y, out_shardings=WHOLE)(first, X)


@case
def one_device(jit: Any) -> Any:
    return jit(plain, in_shardings=SECOND)(X, X)


@case
def device_keyword(jit: Any) -> Any:
    return jit(plain, device=jax.devices()[2])(X, X)


@case
def backend_keyword(jit: Any) -> Any:
    return jit(plain, backend="cpu")(X, X)


@case
def committed_argument(jit: Any) -> Any:
    return jit(lambda x: x + 1)(jax.device_put(X, jax.devices()[5]))


@case
def keys_and_integers(jit: Any) -> Any:
    keys = jax.random.split(jax.random.key(0), 8)
    return jit(lambda k: jax.vmap(jax.random.uniform)(k), in_shardings=ROWS)(keys), jit(
        lambda n: n + 1, out_shardings=WHOLE
    )(3)


@case
def lowered_for_shapes(jit: Any) -> Any:
    like = jax.ShapeDtypeStruct((8, 8), "float32", sharding=ROWS)
    return jit(lambda x: x * 3).lower(like).compile()(jax.device_put(X, ROWS))


@case
def grid_of_other_order(jit: Any) -> Any:
    mesh = jax.sharding.Mesh(np.array(jax.devices())[::-1].reshape(2, 4), ("a", "b"))
    return jit(lambda x: x + 1, out_shardings=NamedSharding(mesh, P("b", "a")))(X)


def _after_block(jitted: Any) -> Any:
    with MESH:
        jitted(X)
    return jitted(X)


MISTAKES: dict[str, Callable[[Any], Any]] = {
    "not divisible": lambda jit: jit(lambda x: x, in_shardings=ROWS)(np.zeros(3, np.float32)),
    "no prefix": lambda jit: jit(plain, in_shardings=(ROWS,))(X, X),
    "no prefix of results": lambda jit: jit(plain, out_shardings={"sum": ROWS})(X, X),
    "keywords": lambda jit: jit(plain, in_shardings=ROWS)(x=X, y=X),
    "no sharding": lambda jit: jit(plain, in_shardings="x")(X, X),
    "rank": lambda jit: jit(lambda x: x, out_shardings=NamedSharding(MESH, P("x", "y")))(X[0]),
    "device and sharding": lambda jit: jit(plain, device=jax.devices()[0], in_shardings=ROWS),
    "no mesh any more": lambda jit: _after_block(jit(lambda x: jax.lax.with_sharding_constraint(x, P("x")))),
    "another sharding": lambda jit: jit(plain, in_shardings=ROWS)(jax.device_put(X, COLUMNS), X),
}


def described(tree: Any) -> Any:
    """Values, types and places of the leaves."""
    leaves, treedef = jax.tree.flatten(tree)
    places = [leaf.sharding.devices_indices_map(leaf.shape) for leaf in leaves]
    texts = [sorted((device.id, str(index)) for device, index in place.items()) for place in places]
    kinds = [(str(leaf.dtype), type(leaf.sharding).__name__) for leaf in leaves]
    values = [np.asarray(leaf).tolist() for leaf in leaves]
    return str(treedef), list(zip(kinds, values, texts, strict=True))


def outcome(fun: Callable[[Any], Any], jit: Any) -> Any:
    jax.clear_caches()  # what was traced already warns no more
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = described(fun(jit))
        except Exception as error:
            result = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
    return result, [(w.category.__name__, str(w.message)[:40]) for w in caught]


def main() -> None:
    found = {}
    for name, fun in CASES.items():
        ours, theirs = outcome(fun, jitclient.jit), outcome(fun, jax.jit)
        fine = ours == theirs and not isinstance(theirs[0], str)
        found[name] = "" if fine else f"ours {ours}\ntheirs {theirs}"
    for name, fun in MISTAKES.items():
        ours, theirs = outcome(fun, jitclient.jit)[0], outcome(fun, jax.jit)[0]
        fine = all(isinstance(one, str) for one in (ours, theirs))
        fine = fine and ours.partition(":")[0] == theirs.partition(":")[0]
        found[name] = "" if fine else f"ours {ours}\ntheirs {theirs}"
    print(json.dumps(found))


if __name__ == "__main__":
    sys.exit(main())
