"""PPO on CartPole with Flax NNX: environment, network, optimizer and metrics, the whole training in one jitted scan."""

import cartpole
import jax
import jax.numpy as jnp
import optax
from flax import nnx

import jitclient

jitclient.install()  # `nnx.jit` is jitclient's from here on

ENVIRONMENTS, STEPS, EPOCHS, MINIBATCHES, UPDATES = 16, 128, 4, 4, 40


class ActorCritic(nnx.Module):
    """The action in a state, and the value of the state."""

    def __init__(self, rngs):
        self.actor = nnx.Sequential(nnx.Linear(4, 64, rngs=rngs), nnx.tanh, nnx.Linear(64, 2, rngs=rngs))
        self.critic = nnx.Sequential(nnx.Linear(4, 64, rngs=rngs), nnx.tanh, nnx.Linear(64, 1, rngs=rngs))

    def __call__(self, state):
        return nnx.log_softmax(self.actor(state)), self.critic(state)[..., 0]


def chosen(scores, actions):
    return jnp.take_along_axis(scores, actions[..., None], axis=-1)[..., 0]


def roll_out(model, states, key):
    """Play for some steps in all environments."""

    def play(states, key):
        choice, reset = jax.random.split(key)
        scores, values = model(states)
        actions = jax.random.categorical(choice, scores)
        after, fell = jax.vmap(cartpole.step)(states, actions, jax.random.split(reset, ENVIRONMENTS))
        return after, (states, actions, chosen(scores, actions), values, fell)

    return jax.lax.scan(play, states, jax.random.split(key, STEPS))


def loss_of(model, batch):
    states, actions, before, gains, targets = batch
    scores, values = model(states)
    ratio = jnp.exp(chosen(scores, actions) - before)
    gains = (gains - gains.mean()) / (gains.std() + 1e-8)
    policy = -jnp.minimum(ratio * gains, ratio.clip(0.8, 1.2) * gains).mean()
    entropy = -(jnp.exp(scores) * scores).sum(-1).mean()
    return policy + 0.5 * ((values - targets) ** 2).mean() - 0.01 * entropy


@nnx.jit
def train(model, optimizer, metrics, states, key):
    @nnx.scan(in_axes=(nnx.Carry, 0), out_axes=(nnx.Carry, 0))
    def learn(carry, batch):
        model, optimizer, metrics = carry
        loss, gradients = nnx.value_and_grad(loss_of)(model, batch)
        optimizer.update(model, gradients)
        metrics.update(values=loss)
        return carry, loss

    @nnx.scan(in_axes=(nnx.Carry, 0), out_axes=(nnx.Carry, 0))
    def update(carry, key):
        *learners, states = carry
        play, shuffle = jax.random.split(key)
        states, (seen, actions, scores, values, fell) = roll_out(learners[0], states, play)
        gains = cartpole.advantages(values, learners[0](states)[1], fell)
        played = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (seen, actions, scores, gains, gains + values))
        orders = [jax.random.permutation(each, ENVIRONMENTS * STEPS) for each in jax.random.split(shuffle, EPOCHS)]
        order = jnp.concatenate(orders).reshape(EPOCHS * MINIBATCHES, -1)
        (*learners,), _ = learn(tuple(learners), jax.tree.map(lambda x: x[order], played))
        return (*learners, states), ENVIRONMENTS * STEPS / fell.sum().clip(1)

    (*_, states), lengths = update((model, optimizer, metrics, states), jax.random.split(key, UPDATES))
    return states, lengths


model = ActorCritic(nnx.Rngs(0))
optimizer = nnx.Optimizer(model, optax.chain(optax.clip_by_global_norm(0.5), optax.adam(1e-3)), wrt=nnx.Param)
metrics = nnx.metrics.Average()
states = jax.vmap(cartpole.reset)(jax.random.split(jax.random.key(1), ENVIRONMENTS))
for round in range(3):
    states, lengths = train(model, optimizer, metrics, states, jax.random.key(round))
    loss = metrics.compute()
    print(f"after {(round + 1) * UPDATES} updates, a pole stands for {lengths[-1]:.0f} steps; loss {loss:.3f}")
    metrics.reset()
