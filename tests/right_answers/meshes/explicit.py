"""Shardings in types: meshes of explicit axes, which `jax.make_mesh` makes unless told otherwise."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

MESH = jax.make_mesh((4, 2), ("X", "Y"), axis_types=(AxisType.Explicit, AxisType.Explicit))
MIXED = jax.make_mesh((4, 2), ("X", "Y"), axis_types=(AxisType.Explicit, AxisType.Auto))
COLD = ["case_product_that_must_be_told", "case_closed_over_without_a_mesh"]  # no program is left of what raises
A = np.arange(64, dtype=np.float32).reshape(8, 8) / 7


def case_types_say_where(jit, device_put):
    with jax.set_mesh(MESH):
        x = device_put(A, P("X", "Y"))
        y = jit(lambda x: jnp.sin(x) + 1)(x)
        return str(jax.typeof(x)), str(jax.typeof(y)), y


def case_types_seen_inside(jit, device_put):
    def f(x):
        assert jax.typeof(x).sharding.spec == P("X", None)
        return x * len([axis for axis in jax.typeof(x).sharding.spec if axis])

    with jax.set_mesh(MESH):
        return jit(f)(device_put(A, P("X", None)))


def case_reshard(jit, device_put):
    with jax.set_mesh(MESH):
        return jit(lambda x: jax.sharding.reshard(x, P(None, "Y")))(device_put(A, P("X", None)))


def case_products(jit, device_put):
    with jax.set_mesh(MESH):
        x, w = device_put(A, P("X", None)), device_put(A, P(None, "Y"))
        return jit(lambda x, w: x @ w)(x, w)


def case_product_that_must_be_told(jit, device_put):
    with jax.set_mesh(MESH):
        x, w = device_put(A, P("X", "Y")), device_put(A, P("Y", None))
        told = jit(lambda x, w: jnp.einsum("ab,bc->ac", x, w, out_sharding=P("X", None)))(x, w)
        try:
            jit(lambda x, w: x @ w)(x, w)
        except Exception as error:
            return told, type(error).__name__
        return told


def case_operations(jit, device_put):
    with jax.set_mesh(MESH):
        x = jit(lambda x: x * 2)(device_put(A, P("X", None)))
        return x + 1, x * x, x.T, x.sum(1), -x, x[:, 1:3]


def case_without_a_mesh_in_force(jit, device_put):
    x = device_put(A, NamedSharding(MESH, P("X", None)))
    return jit(lambda x: x * 2)(x)


def case_mixed_axes(jit, device_put):
    with jax.set_mesh(MIXED):
        return jit(lambda x: x * 2)(device_put(A, P("X", None)))


def case_made_inside(jit):
    with jax.set_mesh(MESH):
        return jit(lambda: jnp.zeros((8, 4), out_sharding=P("X", None)) + 1)()


def case_auto_axes(jit, device_put):
    with jax.set_mesh(MESH):
        f = jax.sharding.auto_axes(lambda x, y: x @ y)
        return jit(lambda x, y: f(x, y, out_sharding=P("X", "Y")))(
            device_put(A, P("X", "Y")), device_put(A, P("X", "Y"))
        )


def case_gradient(jit, device_put):
    with jax.set_mesh(MESH):
        w, x = device_put(A, P(None, "Y")), device_put(A, P("X", None))
        return jit(jax.grad(lambda w, x: jnp.sum((x @ w) ** 2)))(w, x)


def case_scan(jit, device_put):
    with jax.set_mesh(MESH):
        x = device_put(A, P("X", None))
        return jit(lambda x: jax.lax.scan(lambda c, _: (c * 0.5 + 1, None), x, None, length=4)[0])(x)


def case_set_for_good(jit, device_put):
    before = jax.set_mesh(MESH)
    try:
        x = device_put(A, P("X", "Y"))
        return jit(lambda x: x + 1)(x)
    finally:
        before.__exit__(None, None, None)


def case_closed_over(jit, device_put):
    with jax.set_mesh(MESH):
        w = device_put(A, P("X", None))
        return jit(lambda x: x + w)(device_put(A, P("X", None))), jit(lambda x: x * w)(A)


def case_own_jax_on_results(jit, device_put):
    with jax.set_mesh(MESH):
        x = jit(lambda x: x * 2)(device_put(A, P("X", None)))
        return jnp.sin(x), jax.jit(lambda x: x + 1)(x), jax.grad(lambda x: jnp.sum(x * x))(x), str(jax.typeof(x + 1))


def case_closed_over_plain_arrays(jit):
    with jax.set_mesh(MESH):
        rows, columns = jax.device_put(A, P("X", None)), jax.device_put(A, P(None, "Y"))
        return [jit(lambda x, w=w: x * w)(A) for w in (rows, columns)]


def case_closed_over_without_a_mesh(jit):
    w = jax.device_put(A, NamedSharding(MESH, P("X", None)))
    try:
        return jit(lambda x: x * w)(A)
    except Exception as error:
        return type(error).__name__
