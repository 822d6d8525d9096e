"""Fit a mixture of normal distributions with distrax. Run it twice: the second run traces and compiles nothing."""

import distrax
import jax
import jax.numpy as jnp
import numpy as np
import optax

import jitclient

jitclient.install()

optimizer = optax.adam(0.05)


def mixture(params):
    """Three normal distributions, mixed."""
    return distrax.MixtureSameFamily(
        mixture_distribution=distrax.Categorical(logits=params["logits"]),
        components_distribution=distrax.Normal(params["means"], jnp.exp(params["log_spreads"])),
    )


@jax.jit
def step(params, state, data):
    """One step of Adam on the likelihood."""
    loss, gradients = jax.value_and_grad(lambda params: -mixture(params).log_prob(data).mean())(params)
    updates, state = optimizer.update(gradients, state)
    return optax.apply_updates(params, updates), state, loss


@jax.jit
def draw(params, key):
    """Some samples of the fitted mixture."""
    return mixture(params).sample(seed=key, sample_shape=(1000,))


random = np.random.default_rng(0)
data = np.concatenate([random.normal(mean, 0.5, 300) for mean in (-3, 0, 4)]).astype(np.float32)
params = {"logits": jnp.zeros(3), "means": jnp.array([-2.0, 0.5, 2.0]), "log_spreads": jnp.zeros(3)}
state = jax.jit(optimizer.init)(params)
for number in range(300):
    params, state, loss = step(params, state, data)
    if number % 100 == 0:
        print(f"step {number}: loss {float(loss):.3f}")
print("means", " ".join(f"{mean:.1f}" for mean in np.asarray(params["means"])))
print(f"a sample's mean {float(draw(params, jax.random.key(0)).mean()):.1f}")
