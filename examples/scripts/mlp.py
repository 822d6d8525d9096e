"""Plain JAX: a network as a list of arrays, and a training loop with momentum. Takes the number of steps."""

import sys

import jax
import jax.numpy as jnp
import numpy as np

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 200


def init(key, sizes):
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        {"w": jax.random.normal(key, (inputs, outputs)) * (2 / inputs) ** 0.5, "b": jnp.zeros(outputs)}
        for key, inputs, outputs in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


def predict(params, x):
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def loss_of(params, x, y):
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(predict(params, x)), y[:, None], axis=1))


@jax.jit
def step(params, velocity, x, y):
    loss, gradients = jax.value_and_grad(loss_of)(params, x, y)
    velocity = jax.tree.map(lambda v, g: 0.9 * v + g, velocity, gradients)
    return jax.tree.map(lambda p, v: p - 0.05 * v, params, velocity), velocity, loss


@jax.jit
def accuracy(params, x, y):
    return jnp.mean(jnp.argmax(predict(params, x), axis=1) == y)


if __name__ == "__main__":
    random = np.random.default_rng(0)
    x = random.normal(size=(1024, 8)).astype(np.float32)
    y = (x[:, 0] * x[:, 1] > 0) * 2 + (x[:, 2] > 0)
    params = init(jax.random.key(0), (8, 64, 64, 4))
    velocity = jax.tree.map(jnp.zeros_like, params)
    for number in range(STEPS):
        params, velocity, loss = step(params, velocity, x, y)
        if number % 50 == 0:
            print(f"step {number}: loss {loss:.3f}")
    print(f"accuracy {accuracy(params, x, y):.2f}")
