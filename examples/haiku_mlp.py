"""Train a haiku network with state and dropout. Run it twice: the second run traces and compiles nothing."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax

import jitclient

jitclient.install()


def network(x, training):
    """A network of two layers, with batch normalization and dropout."""
    x = hk.Linear(64)(x)
    x = jax.nn.relu(hk.BatchNorm(create_scale=True, create_offset=True, decay_rate=0.9)(x, training))
    if training:
        x = hk.dropout(hk.next_rng_key(), 0.1, x)
    return hk.Linear(1)(x)


model = hk.transform_with_state(network)
optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-2))


@jax.jit
def start(key, x):
    """Parameters, state of the batch normalization, and state of the optimizer."""
    params, state = model.init(key, x, training=True)
    return params, state, optimizer.init(params)


@jax.jit
def step(params, state, optimizer_state, key, x, y):
    """One step of Adam."""

    def loss_of(params):
        guess, new_state = model.apply(params, state, key, x, training=True)
        return jnp.mean((guess[:, 0] - y) ** 2), new_state

    (loss, state), gradients = jax.value_and_grad(loss_of, has_aux=True)(params)
    updates, optimizer_state = optimizer.update(gradients, optimizer_state, params)
    return optax.apply_updates(params, updates), state, optimizer_state, loss


x = np.random.default_rng(0).uniform(-2, 2, size=(512, 1)).astype(np.float32)
y = np.sin(3 * x[:, 0])
params, state, optimizer_state = start(jax.random.key(0), x)
for number in range(300):
    params, state, optimizer_state, loss = step(params, state, optimizer_state, jax.random.key(number), x, y)
    if number % 100 == 0:
        print(f"step {number}: loss {float(loss):.3f}")
guess, _ = jax.jit(model.apply, static_argnames="training")(params, state, None, x, training=False)
print(f"without dropout: loss {float(jnp.mean((guess[:, 0] - y) ** 2)):.3f}")
