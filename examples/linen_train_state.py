"""Train a flax linen network with a `TrainState`. Run it twice: the second run traces and compiles nothing."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState

import jitclient

jitclient.install()


class Classifier(nn.Module):
    """A network of one hidden layer with dropout."""

    @nn.compact
    def __call__(self, x, training):
        x = nn.relu(nn.Dense(64)(x))
        x = nn.Dropout(0.1, deterministic=not training)(x)
        return nn.Dense(2)(x)


@jax.jit
def start(key, x):
    """The initial state: parameters, optimizer and the network's own function."""
    network = Classifier()
    params = network.init(key, x, training=False)["params"]
    return TrainState.create(apply_fn=network.apply, params=params, tx=optax.adamw(1e-2))


@jax.jit
def step(state, x, labels, key):
    """One step of AdamW."""

    def loss_of(params):
        logits = state.apply_fn({"params": params}, x, training=True, rngs={"dropout": key})
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    loss, gradients = jax.value_and_grad(loss_of)(state.params)
    return state.apply_gradients(grads=gradients), loss


@jax.jit
def accuracy(state, x, labels):
    """The part of the points whose class is guessed right."""
    return jnp.mean(state.apply_fn({"params": state.params}, x, training=False).argmax(-1) == labels)


random = np.random.default_rng(0)
x = random.normal(size=(512, 2)).astype(np.float32)
labels = (x[:, 0] * x[:, 1] > 0).astype(np.int32)  # opposite quadrants
state = start(jax.random.key(0), x)
for number in range(200):
    state, loss = step(state, x, labels, jax.random.key(number))
    if number % 50 == 0:
        print(f"step {number}: loss {float(loss):.3f}")
print(f"after step {int(state.step)}: accuracy {float(accuracy(state, x, labels)):.2f}")
