"""Consecutive training steps of a small transformer whose parameters begin as numpy arrays.

Usage: python transformer.py jax|jitclient LAYERS WIDTH STEPS. The last line says in JSON when what was done. With
EDITED=NUMBER, the first layer multiplies its result by that, as after an edit.
"""

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

jit = importlib.import_module(sys.argv[1]).jit

LAYERS, WIDTH, STEPS = map(int, sys.argv[2:5])
EDITED = float(os.environ.get("EDITED", "0"))
BATCH, LENGTH, TOKENS, HEADS = 2, 64, 256, 4
Tree = Any
Step = Callable[[Tree, Any], tuple[Tree, jax.Array]]


def normalized(x: jax.Array) -> jax.Array:
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-6)


def attended(layer: Tree, x: jax.Array) -> jax.Array:
    q, k, v = ((x @ layer[name]).reshape(BATCH, -1, HEADS, WIDTH // HEADS) for name in ("q", "k", "v"))
    scores = jnp.einsum("bihd,bjhd->bhij", q, k) * (WIDTH // HEADS) ** -0.5
    past = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    shares = jax.nn.softmax(jnp.where(past, scores, -jnp.inf))
    return jnp.einsum("bhij,bjhd->bihd", shares, v).reshape(x.shape) @ layer["out"]


def loss_of(params: Tree, tokens: jax.Array) -> jax.Array:
    x = params["tokens"][tokens[:, :-1]]
    for at, layer in enumerate(params["layers"]):
        x = x + attended(layer, normalized(x))
        x = x + jax.nn.gelu(normalized(x) @ layer["up"]) @ layer["down"]
        if EDITED and at == 0:
            x = x * EDITED
    guesses = jax.nn.log_softmax(normalized(x) @ params["tokens"].T)
    return -jnp.take_along_axis(guesses, tokens[:, 1:, None], -1).mean()


@jit
def step(params: Tree, tokens: jax.Array) -> tuple[Tree, jax.Array]:
    loss, slopes = jax.value_and_grad(loss_of)(params, tokens)
    return jax.tree.map(lambda param, slope: param - 0.01 * slope, params, slopes), loss


def initial(random: np.random.Generator) -> Tree:
    def matrix(rows: int, columns: int) -> np.ndarray:
        return (random.standard_normal((rows, columns), np.float32) * rows**-0.5).astype(np.float32)

    shapes = {"q": (1, 1), "k": (1, 1), "v": (1, 1), "out": (1, 1), "up": (1, 4), "down": (4, 1)}
    layers = [
        {name: matrix(rows * WIDTH, columns * WIDTH) for name, (rows, columns) in shapes.items()} for _ in range(LAYERS)
    ]
    return {"tokens": matrix(TOKENS, WIDTH), "layers": layers}


def beginning() -> tuple[Tree, np.ndarray]:
    """The parameters and the tokens of the first step."""
    random = np.random.default_rng(0)
    return initial(random), random.integers(0, TOKENS, (BATCH, LENGTH + 1)).astype(np.int32)


def train(step: Step, params: Tree, tokens: np.ndarray, load: float = 0.0) -> None:
    """Takes the steps, and prints when each ended; `load` is how many seconds it took to load the step."""
    ready = time.time()
    ends, losses = [], []
    for _ in range(STEPS):
        params, loss = step(params, tokens)
        losses.append(float(loss))
        ends.append(time.time())
    print(json.dumps({"ready": ready, "ends": ends, "losses": losses, "load": load}))


if __name__ == "__main__":
    train(step, *beginning())
