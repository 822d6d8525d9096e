"""A sweep of 20 settings on many hosts: each trains the same network with another learning rate and seed.

    python examples/sweep.py                                     # two workers on this machine
    python examples/sweep.py local:4
    python examples/sweep.py ssh://a/~/jit ssh://b/~/jit         # a worker on each of two machines
    python examples/sweep.py ray                                 # a worker on each node of a Ray cluster

The data is loaded once on each host. A host compiles one program for all settings, and the second run of the sweep
compiles nothing on any of them.
"""

import itertools
import sys

import jax
import jax.numpy as jnp
import numpy as np

import jitclient

WIDTHS = (8, 64, 64, 1)
RATES = [0.07 * 0.7**number for number in range(10)]
SEEDS = range(2)


def load():
    """The data, made on the host that needs it; a real program reads files there."""
    x = np.random.default_rng(0).normal(size=(512, WIDTHS[0])).astype(np.float32)
    return {"x": x, "y": np.sin(2 * x[:, :2]).sum(axis=1, keepdims=True)}


def prediction(params, x):
    *hidden, last = params
    for weights, bias in hidden:
        x = jnp.tanh(x @ weights + bias)
    return x @ last[0] + last[1]


def loss_of(params, data):
    return jnp.mean((prediction(params, data["x"]) - data["y"]) ** 2)


@jitclient.jit
def fit(rate, seed, data):
    """The loss after 300 steps of gradient descent from a random start."""
    keys = jax.random.split(jax.random.key(seed), len(WIDTHS) - 1)
    shapes = zip(keys, itertools.pairwise(WIDTHS), strict=True)
    params = [(jax.random.normal(key, shape) / shape[0] ** 0.5, jnp.zeros(shape[1])) for key, shape in shapes]

    def step(params, _):
        loss, gradients = jax.value_and_grad(loss_of)(params, data)
        return jax.tree.map(lambda p, g: p - rate * g, params, gradients), loss

    return jax.lax.scan(step, params, length=300)[1][-1]


def train(rate, seed, data):
    """Train with one setting: plain Python around a jitted function, run by a worker beside its host's daemon."""
    return float(fit(rate, seed, data))


def main(hosts) -> None:
    """Runs the sweep, and prints the mean loss of each rate."""
    rates, seeds = zip(*itertools.product(RATES, SEEDS), strict=True)
    with jitclient.pool(hosts) as pool:
        data = pool.keep("sweep", load)
        losses = list(pool.map(train, rates, seeds, [data] * len(rates)))
    means = np.reshape(losses, (len(RATES), len(SEEDS))).mean(axis=1)
    for rate, mean in zip(RATES, means, strict=True):
        print(f"rate {rate:.4f}: loss {mean:.3f}")
    print(f"best rate {RATES[int(means.argmin())]:.4f}")


if __name__ == "__main__":
    main(sys.argv[1:] or ["local:2"])
