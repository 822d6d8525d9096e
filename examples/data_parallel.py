"""Train on a mesh of eight devices: each has all of the parameters and an eighth of each batch.

Without eight accelerators, it uses eight devices of the CPU, which it asks jax to make. A daemon that this program
starts has as many; for one that runs already, start it with JAX_NUM_CPU_DEVICES=8.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jitclient

jax.config.update("jax_num_cpu_devices", 8)

mesh = jax.make_mesh((8,), ("batch",), axis_types=(AxisType.Auto,))
rows, whole = NamedSharding(mesh, P("batch")), NamedSharding(mesh, P())


def loss_of(params, x, y):
    """Mean squared error of a network of one hidden layer."""
    return jnp.mean((jnp.tanh(x @ params["w1"] + params["b1"]) @ params["w2"] - y) ** 2)


@jitclient.jit(donate_argnums=0)
def step(params, x, y):
    """One step of gradient descent. The gradients of all devices are added: the loss is a mean over the batch."""
    loss, gradients = jax.value_and_grad(loss_of)(params, x, y)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), loss


def main() -> None:
    """Trains for 300 steps and prints the loss on the way."""
    random = np.random.default_rng(0)
    x = random.normal(size=(512, 4)).astype(np.float32)
    y = np.sin(x.sum(axis=1, keepdims=True))
    params = {
        "w1": random.normal(size=(4, 64)).astype(np.float32) / 2,
        "b1": np.zeros(64, np.float32),
        "w2": random.normal(size=(64, 1)).astype(np.float32) / 8,
    }
    params = jitclient.device_put(params, whole)  # on each device
    batches = [jitclient.device_put((x[n::4], y[n::4]), rows) for n in range(4)]  # an eighth of each on each device

    for number in range(300):
        params, loss = step(params, *batches[number % 4])
        if number % 100 == 0:
            print(f"step {number}: loss {float(loss):.4f}")
    print(f"final loss {float(loss):.4f}")
    print(f"on {len(params['w1'].devices())} devices")


if __name__ == "__main__":
    main()
