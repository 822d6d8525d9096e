"""Manual programming of devices: shard_map, its collectives, pmap."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

GRID = jax.make_mesh((4, 2), ("i", "j"), axis_types=(AxisType.Auto, AxisType.Auto))
RING = jax.make_mesh((8,), ("ring",), axis_types=(AxisType.Auto,))
X = np.arange(64, dtype=np.float32).reshape(8, 8) / 7


def case_matmul_by_blocks(jit):
    @functools.partial(jax.shard_map, mesh=GRID, in_specs=(P("i", "j"), P("j", None)), out_specs=P("i", None))
    def matmul(a, b):
        return jax.lax.psum(a @ b, "j")

    return jit(matmul)(X, X)


def case_jit_of_a_decorated_function(jit, device_put):
    @jit
    @jax.shard_map(mesh=RING, in_specs=P("ring"), out_specs=P("ring"))
    def f(x):
        return x * jax.lax.axis_index("ring") + jax.lax.axis_size("ring")

    return f(X), f(device_put(X, NamedSharding(RING, P("ring"))))


def case_a_jitted_function_inside(jit):
    inner = jit(lambda x: jnp.sin(x) * 2)
    mapped = jax.shard_map(lambda x: inner(x), mesh=RING, in_specs=P("ring"), out_specs=P("ring"))
    return jit(mapped)(X), mapped(X)


def case_collectives(jit):
    @functools.partial(jax.shard_map, mesh=RING, in_specs=P("ring"), out_specs=P("ring"))
    def f(x):
        left = jax.lax.ppermute(x, "ring", [(n, (n + 1) % 8) for n in range(8)])
        total = jax.lax.psum(x, "ring")
        most = jax.lax.pmax(x, "ring")
        mean = jax.lax.pmean(x, "ring")
        turned = jax.lax.all_to_all(x, "ring", 1, 1, tiled=True)
        scattered = jax.lax.psum_scatter(jnp.tile(x, (8, 1)), "ring", tiled=True)
        gathered = jax.lax.all_gather(x, "ring", tiled=True).sum(0, keepdims=True)
        return left + total + most + mean + turned + scattered + gathered

    return jit(f)(X)


def case_ring_of_products(jit):
    @functools.partial(jax.shard_map, mesh=RING, in_specs=(P("ring"), P("ring")), out_specs=P("ring"))
    def f(a, b):
        def turn(n, carry):
            total, b = carry
            at = (jax.lax.axis_index("ring") - n) % 8
            part = jax.lax.dynamic_slice_in_dim(a, at, 1, 1)
            b_next = jax.lax.ppermute(b, "ring", [(k, (k + 1) % 8) for k in range(8)])
            return total + part @ b, b_next

        total, _ = jax.lax.fori_loop(0, 8, turn, (jnp.zeros_like(a), b))
        return total

    return jit(f)(X, X)


def case_gradient_through_it(jit):
    @functools.partial(jax.shard_map, mesh=RING, in_specs=(P(), P("ring")), out_specs=P())
    def loss(w, x):
        return jax.lax.pmean(jnp.mean((x @ w) ** 2), "ring")

    return jit(jax.value_and_grad(loss))(X[0], X)


def case_random_numbers_for_each_device(jit):
    @functools.partial(jax.shard_map, mesh=RING, in_specs=P(), out_specs=P("ring"))
    def draw(key):
        return jax.random.normal(jax.random.fold_in(key, jax.lax.axis_index("ring")), (1, 3))

    return jit(draw)(jax.random.key(3))


def case_scan_inside(jit):
    @functools.partial(jax.shard_map, mesh=RING, in_specs=P("ring"), out_specs=P("ring"))
    def f(x):
        return jax.lax.scan(lambda c, _: (jnp.cos(c) + jax.lax.pmean(c, "ring"), None), x, None, length=3)[0]

    return jit(f)(X)


def case_mesh_from_the_context(jit):
    mapped = jax.shard_map(lambda x: jax.lax.psum(x, "ring"), in_specs=P("ring"), out_specs=P())
    with jax.set_mesh(RING):
        return jit(mapped)(X)


def case_some_axes_only(jit):
    @functools.partial(jax.shard_map, mesh=GRID, in_specs=P("i"), out_specs=P("i"), axis_names={"i"})
    def f(x):
        return x - jax.lax.pmean(x, "i")

    return jit(f)(X)


def case_outside_of_jit(jit):
    x = jit(lambda x: x + 1, out_shardings=NamedSharding(RING, P("ring")))(X)
    return jax.shard_map(lambda x: x * 2, mesh=RING, in_specs=P("ring"), out_specs=P("ring"))(x)


def case_pmap_inside(jit):
    return jit(jax.pmap(lambda x: x / jax.lax.psum(x, "d"), axis_name="d"))(X + 1)


def case_pmap_of_ours(jit):
    inner = jit(lambda x: x * 2)
    return jax.pmap(lambda x: inner(x) + jax.lax.pmean(x, "d"), axis_name="d")(X)


def case_pmap_of_results(jit):
    x = jit(lambda x: x + 1)(X)
    y = jax.pmap(lambda x: x * 2)(x)
    return y, jit(lambda y: y.sum(0))(y)


def case_vmap_with_an_axis(jit):
    place = NamedSharding(RING, P("ring"))
    f = jit(jax.vmap(lambda x: x - jax.lax.pmean(x, "b"), axis_name="b"), in_shardings=place, out_shardings=place)
    return f(X)
