"""Train a small network with optax. Run it twice: the second run traces and compiles nothing."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jitclient

optimizer = optax.adam(1e-2)


def predict(params, x):
    """A network of one hidden layer."""
    return jnp.tanh(x @ params["w1"] + params["b1"]) @ params["w2"]


def loss_of(params, x, y):
    """Mean squared error."""
    return jnp.mean((predict(params, x) - y) ** 2)


@jitclient.jit(donate_argnums=(0, 1))
def step(params, state, x, y):
    """One step of Adam. The old parameters are donated: the daemon reuses their memory."""
    loss, gradients = jax.value_and_grad(loss_of)(params, x, y)
    updates, state = optimizer.update(gradients, state)
    return optax.apply_updates(params, updates), state, loss


@jitclient.jit
def start(seed):
    """The initial parameters and state, made on the daemon."""
    first, second = jax.random.split(jax.random.key(seed))
    params = {
        "w1": jax.random.normal(first, (4, 64)) / 2,
        "b1": jnp.zeros(64),
        "w2": jax.random.normal(second, (64, 1)) / 8,
    }
    return params, optimizer.init(params)


def main() -> None:
    """Trains for 300 steps and prints the loss on the way."""
    began = time.perf_counter()
    random = np.random.default_rng(0)
    x = random.normal(size=(512, 4)).astype(np.float32)
    y = np.sin(x.sum(axis=1, keepdims=True))
    data = jitclient.device_put((x, y))  # once, instead of with each step

    params, state = start(0)
    for number in range(300):
        params, state, loss = step(params, state, *data)  # queued: the loop does not wait
        if number % 100 == 0:
            print(f"step {number}: loss {float(loss):.4f}")  # reading the loss does
            if number == 0:
                print(f"first step after {time.perf_counter() - began:.2f} s")
    print(f"final loss {float(loss):.4f}")


if __name__ == "__main__":
    main()
