"""Train on another machine: only this file is needed here, and nothing of it is installed there.

    JITSERVER_ADDRESS=ssh://you@gpu-host/path/to/environment python examples/remote_worker.py

The functions travel with their first call. Data and parameters are sent once and stay there; over the link go the
calls, in batches, and a loss now and then. The second run compiles nothing, whichever machine it runs on.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

import jitclient

WIDTHS = (16, 128, 128, 1)


def prediction(params, x):
    """A network with two hidden layers."""
    *hidden, last = params
    for weights, bias in hidden:
        x = jax.nn.gelu(x @ weights + bias)
    return x @ last[0] + last[1]


def loss_of(params, x, y):
    """Mean squared error."""
    return jnp.mean((prediction(params, x) - y) ** 2)


@jitclient.jit(donate_argnums=0)
def step(params, x, y):
    """One step of gradient descent."""
    loss, gradients = jax.value_and_grad(loss_of)(params, x, y)
    return jax.tree.map(lambda p, g: p - 0.01 * g, params, gradients), loss


def main() -> None:
    """Trains for 500 steps, looking at the loss five times."""
    random = np.random.default_rng(0)
    params = [
        (random.normal(size=(n, m)).astype(np.float32) / np.sqrt(n), np.zeros(m, np.float32))
        for n, m in itertools.pairwise(WIDTHS)
    ]
    x = random.normal(size=(1024, WIDTHS[0])).astype(np.float32)
    y = np.sin(x[:, :4].sum(axis=1, keepdims=True))
    params, x, y = jitclient.device_put((params, x, y))

    for number in range(500):
        params, loss = step(params, x, y)
        if number % 100 == 0:
            print(f"step {number}: loss {float(loss):.4f}")
    print(f"final loss {float(loss):.4f}")


if __name__ == "__main__":
    main()
