"""Arrays on meshes of eight devices: placed, moved, computed with, looked at."""

import functools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

GRID = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto, AxisType.Auto))
LINE = jax.make_mesh((8,), ("batch",), axis_types=(AxisType.Auto,))
HALF = jax.sharding.Mesh(np.array(jax.devices())[:4], ("batch",))
OTHER_HALF = jax.sharding.Mesh(np.array(jax.devices())[4:], ("batch",))
BACKWARDS = jax.sharding.Mesh(np.array(jax.devices())[::-1], ("batch",))
COLD = ["case_devices_that_differ", "case_meshes_that_differ"]  # no program is left of what raises
X = np.arange(64, dtype=np.float32).reshape(8, 8) / 7


def on(mesh, *axes):
    return NamedSharding(mesh, P(*axes))


def case_put_on_a_mesh(device_put):
    return device_put(X, on(LINE, "batch"))


def case_put_on_a_device(device_put):
    return device_put(X, jax.devices()[3])


def case_put_on_one_device_of_a_sharding(device_put):
    return device_put(X, SingleDeviceSharding(jax.devices()[2]))


def case_put_a_tree(device_put):
    tree = {"w": X, "b": X[0], "n": 3, "key": jax.random.key(1)}
    return device_put(tree, on(LINE)), device_put(tree, jax.devices()[1])


def case_put_a_tree_with_a_tree(device_put):
    places = {"w": on(GRID, "x", "y"), "b": on(GRID, "y"), "more": jax.devices()[5]}
    return device_put({"w": X, "b": X[0], "more": [X, X[1]]}, places)


def case_put_without_a_place_in_the_tree(device_put):
    first = device_put(X, jax.devices()[3])
    return device_put([first, X], [None, on(LINE)]), device_put(first)


def case_move(device_put):
    x = device_put(X, on(LINE, "batch"))
    y = device_put(x, on(GRID, "x", "y"))
    z = device_put(y, jax.devices()[6])
    return x, y, z, device_put(z, on(BACKWARDS, None, "batch"))


def case_move_with_jax(device_put):
    x = device_put(X, on(LINE, "batch"))
    return jax.device_put(x, on(GRID, "y")), jax.device_put(x, jax.devices()[7])


def case_move_a_result(jit, device_put):
    x = jit(lambda x: x + 1)(X)
    return device_put(x, on(LINE, "batch")), jit(jnp.sin)(device_put(x, jax.devices()[2]))


def case_move_keys(jit, device_put):
    keys = jit(lambda key: jax.random.split(key, 8))(jax.random.key(0))
    placed = device_put(keys, on(LINE, "batch"))
    return placed, jit(jax.vmap(jax.random.normal))(placed)


def case_put_a_weak_scalar(jit, device_put):
    x = device_put(2.0, on(LINE))
    return x, jit(lambda x: x * jnp.float16(3))(x)


def case_put_64_bits(jit, device_put):
    with jax.enable_x64(True):
        x = device_put(X.astype(np.float64) + 1e-12, on(LINE, "batch"))
        return x, jit(lambda x: x * 2)(x)


def case_put_does_not_fit(device_put):
    return _raised(lambda: device_put(X[:3], on(LINE, "batch")))


def case_put_of_too_many_axes(device_put):
    return _raised(lambda: device_put(X[0], on(GRID, "x", "y")))


def case_put_tree_does_not_fit(device_put):
    return _raised(lambda: device_put([X, X], [on(LINE)] * 3))


def case_put_what_is_no_place(device_put):
    return _raised(lambda: device_put(X, "cpu:0"))


def case_put_a_spec_without_a_mesh(device_put):
    return _raised(lambda: device_put(X, P("batch")))


def _raised(call):
    try:
        call()
    except Exception as error:
        return type(error).__name__
    return "nothing"


def case_put_under_a_mesh(jit, device_put):
    with jax.set_mesh(GRID):
        return device_put(X, P("x")), jit(lambda x: x * 2)(device_put(X, P(None, "y")))


def case_put_under_a_default_device(jit, device_put):
    with jax.default_device(jax.devices()[4]):
        x = device_put(X)
        y = jit(lambda x: x + 1)(x)
    return x, y, device_put(X, on(LINE)), jit(lambda x: x * 3)(x)


def case_put_donates(device_put):
    return device_put(device_put(X), on(LINE, "batch"), donate=True)


def case_computation_follows_data(jit, device_put):
    x = device_put(X, on(GRID, "x", "y"))
    y = jit(jnp.sin)(x)
    w = device_put(X, on(GRID, None, "y"))
    return y, jit(lambda y, w: y @ w)(y, w), jit(lambda y: y.sum(0))(y), jit(lambda y: y.T)(y)


def case_operations_on_placed_arrays(jit):
    x = jit(lambda x: x, out_shardings=on(LINE, "batch"))(X)
    return x + 1, x @ x, x[2], x[1:5], x.sum(), x.T, x.reshape(-1), x.at[0].set(3.0), x > 2, -x, x.astype("int32")


def case_jnp_on_placed_arrays(jit):
    x = jit(lambda x: x, out_shardings=on(LINE, "batch"))(X)
    return jnp.sin(x), jnp.concatenate([x, x]), jax.vmap(jnp.sum)(x), jax.jit(lambda x: x * 2)(x)


def case_devices_that_differ(jit, device_put):
    x, y = device_put(X, jax.devices()[1]), device_put(X, jax.devices()[2])
    return _raised(lambda: jit(jnp.add)(x, y)), _raised(lambda: x + y)


def case_meshes_that_differ(jit, device_put):
    x, y = device_put(X, on(HALF, "batch")), device_put(X, on(OTHER_HALF, "batch"))
    return _raised(lambda: jit(jnp.add)(x, y)), jit(jnp.add)(x, device_put(y, x.sharding))


def case_one_program_for_each_half(jit, device_put):
    double = jit(lambda x: x * 2)
    return [double(device_put(X, on(mesh, "batch"))) for mesh in (HALF, OTHER_HALF, BACKWARDS, LINE)]


def case_looked_at(jit):
    x = jit(lambda x: x + 1, out_shardings=on(GRID, "x", "y"))(X)
    shards = [(s.device.id, str(s.index), s.replica_id, np.asarray(s.data)) for s in x.addressable_shards]
    return (
        shards,
        sorted(d.id for d in x.devices()),
        [x.is_fully_addressable, x.is_fully_replicated, x.committed, len(x.global_shards), x.device == x.sharding],
        x.addressable_data(3),
        list(x.sharding.shard_shape(x.shape)),
        x.nbytes,
        str(x.sharding.spec),
        str(jax.typeof(x)),
    )


def case_replicated(jit):
    x = jit(lambda x: x + 1, out_shardings=on(GRID))(X)
    return x.is_fully_replicated, x.addressable_shards[5].data, x.addressable_data(0), len(x.devices())


def case_looked_at_on_one_device(jit):
    x = jit(lambda x: x + 1, device=jax.devices()[3])(X)
    return [d.id for d in x.devices()], x.device.id, [s.device.id for s in x.addressable_shards], x.committed


def case_by_value(jit):
    x = jit(lambda x: x + 1, out_shardings=on(LINE, "batch"))(X)
    return np.asarray(x), np.array(pickle.loads(pickle.dumps(x))), jax.device_get(x), x.tolist()


def case_made_from_a_callback(jit, device_put):
    x = jax.make_array_from_callback(X.shape, on(GRID, "x", "y"), lambda index: X[index])
    return x, jit(lambda x: x * 2)(x), device_put(x)


def case_made_from_this_process(jit):
    x = jax.make_array_from_process_local_data(on(LINE, "batch"), X)
    return jit(lambda x: x.sum(1))(x)


def case_made_from_single_arrays(jit, device_put):
    parts = [jax.device_put(X[n : n + 1], device) for n, device in enumerate(jax.devices())]
    x = jax.make_array_from_single_device_arrays((8, 8), on(LINE, "batch"), parts)
    return jit(lambda x: x - 1)(x), device_put(x, on(LINE))


def case_uncommitted_goes_along(jit, device_put):
    x = jit(lambda: jnp.arange(8.0))()
    y = device_put(X, on(LINE, "batch"))
    return jit(lambda x, y: y + x)(x, y), y + x, x + y


def case_donated(jit, device_put):
    step = jit(lambda x: x + 1, donate_argnums=0)
    x = device_put(X, on(LINE, "batch"))
    y = step(x)
    z = step(y)
    return z, x.is_deleted(), y.is_deleted(), z.is_deleted()


def case_donated_tree(jit, device_put):
    sharding = {"w": on(GRID, "x"), "b": on(GRID)}
    step = jit(lambda p, x: jax.tree.map(lambda w: w - x.mean(), p), donate_argnums=0, out_shardings=sharding)
    params = device_put({"w": X, "b": X[0]}, sharding)
    for _ in range(3):
        params = step(params, device_put(X, on(GRID, "x")))
    return params


def case_blocks_of_meshes(jit):
    constrained = jit(lambda x: jax.lax.with_sharding_constraint(x * 2, P("batch")))
    with LINE:
        first = constrained(X)
    with HALF:
        second = constrained(X)
    return first, second


def case_constraint_to_a_sharding(jit, device_put):
    @jit
    def f(x):
        y = jax.lax.with_sharding_constraint(x @ x, on(GRID, "x", "y"))
        return jax.lax.with_sharding_constraint(y + 1, on(GRID, "y"))

    return f(X), f(device_put(X, on(GRID, "x")))


def case_random_under_a_mesh(jit):
    @functools.partial(jit, out_shardings=on(LINE, "batch"))
    def draw(key):
        return jax.random.normal(key, (8, 4))

    return draw(jax.random.key(0)), jit(lambda k: jax.random.split(k, 8), out_shardings=on(LINE, "batch"))(
        jax.random.key(1)
    )


def case_made_on_the_mesh(jit):
    return jit(lambda: {"w": jnp.ones((8, 4)), "b": jnp.zeros(4)}, out_shardings={"w": on(GRID, "x"), "b": on(GRID)})()


def case_a_mesh_that_is_captured(jit):
    def f(x):
        rows = NamedSharding(GRID, P("x"))
        return jax.lax.with_sharding_constraint(x * GRID.shape["x"] * GRID.size, rows)

    return jit(f)(X)


def case_devices_seen_inside(jit):
    return jit(lambda x: x * jax.device_count() + len(jax.devices()) + jax.local_device_count())(X)


def case_a_device_inside(jit):
    return jit(lambda x: jax.device_put(x * 2, on(LINE, "batch")))(X)


def case_put_with_a_spec_inside(jit):
    with jax.set_mesh(LINE):
        return jit(lambda x: jax.device_put(x * 2, P("batch")))(X)


def case_lowered_for_a_mesh(jit, device_put):
    like = jax.ShapeDtypeStruct((8, 8), "float32", sharding=on(LINE, "batch"))
    compiled = jit(lambda x: x.sum(0)).lower(like).compile()
    return compiled(device_put(X, on(LINE, "batch")))


def case_shapes_of_results(jit):
    like = jax.ShapeDtypeStruct((8, 8), "float32", sharding=on(LINE, "batch"))
    shape = jit(lambda x: x * 2, out_shardings=on(LINE)).eval_shape(like)
    return str(shape.shape), str(shape.dtype)


def case_static_shardings(jit):
    f = jit(lambda x, place: jax.lax.with_sharding_constraint(x * 2, place), static_argnums=1)
    return f(X, on(LINE, "batch")), f(X, on(GRID, None, "y"))


def case_static_mesh(jit):
    f = jit(lambda x, mesh: x * mesh.shape["batch"] + len(mesh.axis_names), static_argnames="mesh")
    return f(X, mesh=LINE), f(X, mesh=HALF)


def case_closed_over_placed_array(jit, device_put):
    w = device_put(X, on(LINE, "batch"))
    return jit(lambda x: x @ w)(X)


def case_memory_kinds(device_put):
    place = NamedSharding(LINE, P("batch"), memory_kind=jax.devices()[0].default_memory().kind)
    return device_put(X, place)


def case_meshes_of_other_devices(jit):
    @jit
    def spread(x):
        return jax.lax.with_sharding_constraint(jnp.arange(4.0), P("batch")) + x

    found = []
    for mesh in (HALF, OTHER_HALF, HALF, OTHER_HALF):
        with jax.set_mesh(mesh):
            found += [spread(1.0) for _ in range(3)]
    return found
