"""Train an equinox model with state. Run it twice: the second run traces and compiles nothing."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import jitclient

jitclient.install()

optimizer = optax.adam(1e-2)


class Net(eqx.Module):
    """A network of one hidden layer with batch normalization, whose running mean and variance are its state."""

    first: eqx.nn.Linear
    norm: eqx.nn.BatchNorm
    second: eqx.nn.Linear
    scale: float = eqx.field(static=True)

    def __init__(self, width, key):
        first, second = jax.random.split(key)
        self.first = eqx.nn.Linear(2, width, key=first)
        self.norm = eqx.nn.BatchNorm(width, axis_name="batch", mode="batch")
        self.second = eqx.nn.Linear(width, 1, key=second)
        self.scale = 2.0

    def __call__(self, x, state):
        x, state = self.norm(self.first(x), state)
        return self.scale * self.second(jax.nn.tanh(x)), state


def loss_of(model, state, x, y):
    """Mean squared error over a batch, and the new state."""
    guess, state = jax.vmap(model, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(x, state)
    return jnp.mean((guess - y) ** 2), state


@eqx.filter_jit(donate="all-except-first")
def step(batch, model, state, optimizer_state):
    """One step of Adam. Model and states are donated: the daemon reuses their memory."""
    (loss, state), gradients = eqx.filter_value_and_grad(loss_of, has_aux=True)(model, state, *batch)
    updates, optimizer_state = optimizer.update(gradients, optimizer_state)
    return eqx.apply_updates(model, updates), state, optimizer_state, loss


x = np.random.default_rng(0).normal(size=(256, 2)).astype(np.float32)
batch = x, x[:, :1] * x[:, 1:]
model, state = eqx.nn.make_with_state(Net)(32, jax.random.key(0))
optimizer_state = optimizer.init(eqx.filter(model, eqx.is_array))
for number in range(200):
    model, state, optimizer_state, loss = step(batch, model, state, optimizer_state)
    if number % 50 == 0:
        print(f"step {number}: loss {float(loss):.4f}")
guess, _ = eqx.nn.inference_mode(model)(jnp.ones(2), state)  # the model works in this process too
print(f"at (1, 1): {float(guess[0]):.1f}")
