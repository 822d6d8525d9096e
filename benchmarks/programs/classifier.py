"""A script that knows nothing of jitserver: a classifier with flax and optax on synthetic data.

The last line says in JSON how its loss went, and how long each epoch took.
"""

import json
import time

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState

EPOCHS, BATCHES, BATCH, FEATURES, CLASSES = 20, 16, 64, 32, 10


class Classifier(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for width in (128, 128):
            x = nn.relu(nn.LayerNorm()(nn.Dense(width)(x)))
        return nn.Dense(CLASSES)(x)


MODEL = Classifier()


@jax.jit
def begin(key: jax.Array) -> TrainState:
    params = MODEL.init(key, jnp.zeros((1, FEATURES)))
    return TrainState.create(apply_fn=MODEL.apply, params=params, tx=optax.adamw(3e-3))


@jax.jit
def epoch(state: TrainState, inputs: jax.Array, labels: jax.Array) -> tuple[TrainState, jax.Array]:
    def step(state: TrainState, batch: tuple[jax.Array, jax.Array]) -> tuple[TrainState, jax.Array]:
        def loss_of(params: optax.Params) -> jax.Array:
            scores = state.apply_fn(params, batch[0])
            return optax.softmax_cross_entropy_with_integer_labels(scores, batch[1]).mean()

        loss, gradients = jax.value_and_grad(loss_of)(state.params)
        return state.apply_gradients(grads=gradients), loss

    state, losses = jax.lax.scan(step, state, (inputs, labels))
    return state, losses.mean()


def main() -> None:
    random = np.random.default_rng(0)
    inputs = random.normal(size=(BATCHES, BATCH, FEATURES)).astype(np.float32)
    labels = (inputs @ random.normal(size=(FEATURES, CLASSES))).argmax(-1)
    state, losses, seconds = begin(jax.random.key(0)), [], []
    for _ in range(EPOCHS):
        start = time.perf_counter()
        state, loss = epoch(state, inputs, labels)
        losses.append(float(loss))
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"losses": losses, "seconds": seconds}))


main()
