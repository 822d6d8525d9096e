"""Equinox: a network that reads sequences with a GRU cell, trained with optax in a Python loop."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax


class Reader(eqx.Module):
    """A GRU cell, and what it says at the end of a sequence."""

    cell: eqx.nn.GRUCell
    last: eqx.nn.Linear

    def __init__(self, width, key):
        first, second = jax.random.split(key)
        self.cell = eqx.nn.GRUCell(2, width, key=first)
        self.last = eqx.nn.Linear(width, 1, key=second)

    def __call__(self, sequence):
        begin = jnp.zeros(self.cell.hidden_size)
        state, _ = jax.lax.scan(lambda state, x: (self.cell(x, state), None), begin, sequence)
        return jax.nn.sigmoid(self.last(state))[0]


def spirals(key, number, length=16):
    """Spirals that turn left or right."""
    angle = jnp.linspace(0, 2 * jnp.pi, length)
    begins = jax.random.uniform(key, (number, 1), maxval=2 * jnp.pi)
    turns = jnp.arange(number) % 2
    angles = begins + jnp.where(turns, 1, -1)[:, None] * angle
    return jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=-1) * angle[:, None], turns


@eqx.filter_value_and_grad
def loss_of(model, x, y):
    guess = jax.vmap(model)(x)
    return -jnp.mean(y * jnp.log(guess) + (1 - y) * jnp.log(1 - guess))


@eqx.filter_jit
def step(model, state, x, y):
    loss, gradients = loss_of(model, x, y)
    updates, state = optimizer.update(gradients, state)
    return eqx.apply_updates(model, updates), state, loss


optimizer = optax.adam(1e-2)
made, data = jax.random.split(jax.random.key(0))
x, y = spirals(data, 256)
model = Reader(16, made)
state = optimizer.init(eqx.filter(model, eqx.is_array))
for number in range(100):
    model, state, loss = step(model, state, x, y)
    if number % 25 == 0:
        print(f"step {number}: loss {loss:.3f}")
print(f"in the end {loss:.3f}")
