"""Callbacks of programs for eight devices."""

import contextlib
import io

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

LINE = jax.make_mesh((8,), ("batch",), axis_types=(AxisType.Auto,))
X = np.arange(16, dtype=np.float32)


def on_line(device_put):
    return device_put(X, NamedSharding(LINE, P("batch")))


def case_a_print_and_a_look_at_the_whole(jit, device_put):
    shapes = []

    @jit
    def f(x):
        jax.debug.print("sum {}", x.sum())
        jax.debug.callback(lambda v: shapes.append(v.shape), x)
        return x * 2

    with contextlib.redirect_stdout(io.StringIO()) as text:
        value = f(on_line(device_put))
        jax.effects_barrier()
    return value, text.getvalue(), shapes


def case_each_shard_by_itself(jit, device_put):
    sums = []

    def of_one(x):
        jax.debug.callback(lambda v: sums.append(float(v.sum())), x)
        return x + 1

    f = jit(jax.shard_map(of_one, mesh=LINE, in_specs=P("batch"), out_specs=P("batch")))
    value = f(on_line(device_put))
    jax.effects_barrier()
    return value, sorted(sums)


def case_values_that_come_back(jit, device_put):
    @jit
    def f(x):
        like = jax.ShapeDtypeStruct(x.shape, x.dtype)
        backwards = jax.pure_callback(lambda v: np.asarray(v)[::-1].copy(), like, x)
        return backwards + io_callback(lambda v: np.asarray(v) / 4, like, x), jnp.sum(x)

    return f(on_line(device_put))
