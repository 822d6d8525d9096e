"""PPO on CartPole in the style of purejaxrl: parameters as trees, the whole training in one jitted function."""

import cartpole
import jax
import jax.numpy as jnp
import optax

import jitclient

ENVIRONMENTS, STEPS, EPOCHS, MINIBATCHES = 16, 128, 4, 4
OPTIMIZER = optax.chain(optax.clip_by_global_norm(0.5), optax.scale_by_adam())


def init(key):
    """Parameters of two networks: what to do in a state, and what the state is worth."""
    keys = iter(jax.random.split(key, 4))

    def layer(inputs, outputs):
        return {"w": jax.random.normal(next(keys), (inputs, outputs)) / inputs**0.5, "b": jnp.zeros(outputs)}

    return {"actor": [layer(4, 64), layer(64, 2)], "critic": [layer(4, 64), layer(64, 1)]}


def forward(layers, x):
    first, second = layers
    return jnp.tanh(x @ first["w"] + first["b"]) @ second["w"] + second["b"]


def judge(params, states):
    return jax.nn.log_softmax(forward(params["actor"], states)), forward(params["critic"], states)[..., 0]


def chosen(scores, actions):
    return jnp.take_along_axis(scores, actions[..., None], axis=-1)[..., 0]


def loss_of(params, batch):
    states, actions, before, gains, targets = batch
    scores, values = judge(params, states)
    ratio = jnp.exp(chosen(scores, actions) - before)
    gains = (gains - gains.mean()) / (gains.std() + 1e-8)
    policy = -jnp.minimum(ratio * gains, ratio.clip(0.8, 1.2) * gains).mean()
    entropy = -(jnp.exp(scores) * scores).sum(-1).mean()
    return policy + 0.5 * ((values - targets) ** 2).mean() - 0.01 * entropy


def make_train(updates):
    def play(carry, key):
        params, states = carry
        choice, reset = jax.random.split(key)
        scores, values = judge(params, states)
        actions = jax.random.categorical(choice, scores)
        after, fell = jax.vmap(cartpole.step)(states, actions, jax.random.split(reset, ENVIRONMENTS))
        return (params, after), (states, actions, chosen(scores, actions), values, fell)

    def learn(carry, batch):
        params, state, rate = carry
        loss, gradients = jax.value_and_grad(loss_of)(params, batch)
        changes, state = OPTIMIZER.update(gradients, state, params)
        changes = jax.tree.map(lambda change: -rate * change, changes)
        return (optax.apply_updates(params, changes), state, rate), loss

    def update(carry, key):
        params, state, rate, states = carry
        playing, shuffle = jax.random.split(key)
        (_, states), played = jax.lax.scan(play, (params, states), jax.random.split(playing, STEPS))
        seen, actions, scores, values, fell = played
        gains = cartpole.advantages(values, judge(params, states)[1], fell)
        batch = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (seen, actions, scores, gains, gains + values))
        orders = [jax.random.permutation(each, ENVIRONMENTS * STEPS) for each in jax.random.split(shuffle, EPOCHS)]
        order = jnp.concatenate(orders).reshape(EPOCHS * MINIBATCHES, -1)
        learning, losses = jax.lax.scan(learn, (params, state, rate), jax.tree.map(lambda x: x[order], batch))
        return (*learning, states), (ENVIRONMENTS * STEPS / fell.sum().clip(1), losses.mean())

    def train(key, rate):
        making, resetting, running = jax.random.split(key, 3)
        params = init(making)
        states = jax.vmap(cartpole.reset)(jax.random.split(resetting, ENVIRONMENTS))
        return jax.lax.scan(update, (params, OPTIMIZER.init(params), rate, states), jax.random.split(running, updates))

    return train


if __name__ == "__main__":
    train = jitclient.jit(make_train(updates=100))
    _, (lengths, losses) = train(jax.random.key(0), 1e-3)
    for at in (0, 49, 99):
        print(f"after {at + 1} updates, a pole stands for {lengths[at]:.0f} steps; loss {losses[at]:.3f}")
