"""Training in parallel, in the styles that tutorials teach."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

MESH = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto, AxisType.Auto))
ROWS, WHOLE = NamedSharding(MESH, P("data")), NamedSharding(MESH, P())
RNG = np.random.default_rng(0)
DATA = [(RNG.normal(size=(16, 8)).astype(np.float32), RNG.normal(size=(16, 4)).astype(np.float32)) for _ in range(3)]


def start():
    rng = np.random.default_rng(1)
    return {
        "hidden": {"w": rng.normal(size=(8, 16)).astype(np.float32), "b": np.zeros(16, np.float32)},
        "out": {"w": rng.normal(size=(16, 4)).astype(np.float32), "b": np.zeros(4, np.float32)},
    }


def predict(params, x):
    hidden = jnp.tanh(x @ params["hidden"]["w"] + params["hidden"]["b"])
    return hidden @ params["out"]["w"] + params["out"]["b"]


def loss_of(params, x, y):
    return jnp.mean((predict(params, x) - y) ** 2)


def sgd(params, x, y):
    loss, gradients = jax.value_and_grad(loss_of)(params, x, y)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), loss


def case_data_parallel(jit, device_put):
    step = jit(sgd)
    params = device_put(start(), WHOLE)
    for batch in DATA:
        params, loss = step(params, *device_put(batch, ROWS))
    return params, loss


def case_data_parallel_by_keywords(jit):
    step = jit(sgd, in_shardings=(WHOLE, ROWS, ROWS), out_shardings=(WHOLE, WHOLE), donate_argnums=0)
    params = jit(lambda: jax.tree.map(jnp.asarray, start()), out_shardings=WHOLE)()
    losses = []
    for batch in DATA:
        params, loss = step(params, *batch)
        losses.append(loss)
    return params, losses


def case_batches_put_by_jax(jit):
    step = jit(sgd)
    params = jax.device_put(start(), WHOLE)
    for batch in DATA:
        params, loss = step(params, *jax.device_put(batch, ROWS))
    return params, loss


def case_tensor_parallel(jit, device_put):
    places = {
        "hidden": {"w": NamedSharding(MESH, P(None, "model")), "b": NamedSharding(MESH, P("model"))},
        "out": {"w": NamedSharding(MESH, P("model", None)), "b": WHOLE},
    }
    step = jit(sgd, donate_argnums=0)
    params = device_put(start(), places)
    for batch in DATA:
        params, loss = step(params, *device_put(batch, ROWS))
    return params, loss


def case_fully_sharded(jit, device_put):
    places = jax.tree.map(lambda p: NamedSharding(MESH, P("data") if p.shape[0] % 4 == 0 else P()), start())
    optimizer = optax.adam(1e-2)

    @functools.partial(jit, out_shardings=(places, None, None))
    def step(params, state, x, y):
        loss, gradients = jax.value_and_grad(loss_of)(params, x, y)
        updates, state = optimizer.update(gradients, state)
        return optax.apply_updates(params, updates), state, loss

    params = device_put(start(), places)
    state = jit(optimizer.init)(params)
    for batch in DATA:
        params, state, loss = step(params, state, *device_put(batch, ROWS))
    return params, jax.tree.leaves(state), loss


def case_gradients_summed_by_hand(jit):
    @jit
    @functools.partial(jax.shard_map, mesh=MESH, in_specs=(P(), P("data"), P("data")), out_specs=(P(), P()))
    def step(params, x, y):
        loss, gradients = jax.value_and_grad(lambda p: jax.lax.pmean(loss_of(p, x, y), "data"))(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), loss

    params = start()
    for batch in DATA:
        params, loss = step(params, *batch)
    return params, loss


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        kernel = nn.with_partitioning(nn.initializers.lecun_normal(), (None, "model"))
        x = nn.tanh(nn.Dense(16, kernel_init=kernel)(x))
        return nn.Dense(4, kernel_init=nn.with_partitioning(nn.initializers.lecun_normal(), ("model", None)))(x)


def case_flax_with_partitioned_params(jit, device_put):
    net = Net()
    shapes = jax.eval_shape(net.init, jax.random.key(0), DATA[0][0])
    places = nn.get_sharding(shapes, MESH)
    params = jit(net.init, out_shardings=places)(jax.random.key(0), DATA[0][0])

    @jit
    def step(params, x, y):
        loss, gradients = jax.value_and_grad(lambda p: jnp.mean((net.apply(p, x) - y) ** 2))(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), loss

    for batch in DATA:
        params, loss = step(params, *device_put(batch, ROWS))
    return jax.tree.leaves(params), loss


def case_many_steps_in_a_scan(jit, device_put):
    @functools.partial(jit, donate_argnums=0)
    def train(params, xs, ys):
        return jax.lax.scan(lambda p, batch: sgd(p, *batch), params, (xs, ys))

    place = NamedSharding(MESH, P(None, "data"))
    xs, ys = (np.stack(column) for column in zip(*DATA, strict=True))
    return train(device_put(start(), WHOLE), device_put(xs, place), device_put(ys, place))


def case_ensemble(jit):
    keys = jax.random.split(jax.random.key(0), 4)
    place = NamedSharding(MESH, P("data"))

    def one(key):
        return {"w": jax.random.normal(key, (8, 4)), "b": jnp.zeros(4)}

    params = jit(jax.vmap(one), in_shardings=place, out_shardings=place)(keys)
    forward = jit(jax.vmap(lambda p, x: x @ p["w"] + p["b"], in_axes=(0, None)))
    return forward(params, DATA[0][0])
