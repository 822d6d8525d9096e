"""A program that trains a small transformer, byte by byte, on the documentation that comes with Python.

The program is ordinary, except for `@jitclient.jit` in place of `@jax.jit`, which makes the second run fast.

Usage: python train.py [SALT [LAYERS [STEPS]]]
"""

import json
import pydoc_data.topics
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jitclient

imported = time.time()

SALT, LAYERS, STEPS = (int(text) for text in (sys.argv[1:] + ["0", "12", "10"][len(sys.argv) - 1 :]))
WIDTH, HEADS, LENGTH, BATCH, BYTES = 256, 8, 64, 4, 256
# A different salt makes a different program, which is as cold as a new one.
LEARNING_RATE = 0.05 * (1 + SALT * 2.0**-40)

Tree = Any


def normalize(x: jax.Array) -> jax.Array:
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def attention(layer: Tree, x: jax.Array) -> jax.Array:
    batch, length, _ = x.shape
    q, k, v = (jnp.reshape(x @ layer[name], (batch, length, HEADS, -1)) for name in ("q", "k", "v"))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(WIDTH // HEADS)
    causal = jnp.tril(jnp.ones((length, length), bool))
    weights = jax.nn.softmax(jnp.where(causal, scores, -1e9))
    mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, v)
    return jnp.reshape(mixed, (batch, length, -1)) @ layer["o"]


def logits(params: Tree, text: jax.Array) -> jax.Array:
    x = params["bytes"][text] + params["places"][: text.shape[1]]
    for layer in params["layers"]:
        x = x + attention(layer, normalize(x))
        x = x + jax.nn.gelu(normalize(x) @ layer["up"]) @ layer["down"]
    return normalize(x) @ params["bytes"].T


def loss_of(params: Tree, text: jax.Array) -> jax.Array:
    guesses = jax.nn.log_softmax(logits(params, text[:, :-1]))
    return -jnp.mean(jnp.take_along_axis(guesses, text[:, 1:, None], -1))


@jitclient.jit
def train_step(params: Tree, text: np.ndarray | jax.Array) -> tuple[Tree, jax.Array]:
    loss, gradients = jax.value_and_grad(loss_of)(params, text)
    return jax.tree.map(lambda p, g: p - LEARNING_RATE * g, params, gradients), loss


def initial_params(random: np.random.Generator) -> Tree:
    def matrix(rows: int, columns: int) -> np.ndarray:
        return random.normal(0, rows**-0.5, (rows, columns)).astype(np.float32)

    shapes = dict.fromkeys("qkvo", (WIDTH, WIDTH)) | {"up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
    return {
        "bytes": matrix(BYTES, WIDTH),
        "places": matrix(LENGTH, WIDTH),
        "layers": [{name: matrix(*shape) for name, shape in shapes.items()} for _ in range(LAYERS)],
    }


def main() -> None:
    random = np.random.default_rng(0)
    text = np.frombuffer("".join(pydoc_data.topics.topics.values()).encode(), np.uint8).astype(np.int32)
    params = initial_params(random)
    ready = time.time()

    losses, first = [], 0.0
    for _ in range(STEPS):
        starts = random.integers(0, len(text) - LENGTH - 1, BATCH)
        batch = np.stack([text[start : start + LENGTH + 1] for start in starts])
        params, loss = train_step(params, batch)
        losses.append(float(loss))
        first = first or time.time()
    print(json.dumps({"imported": imported, "ready": ready, "first": first, "end": time.time(), "losses": losses}))


if __name__ == "__main__":
    main()
