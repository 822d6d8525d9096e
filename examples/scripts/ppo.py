"""PPO as purejaxrl has it: environment, policy and training in one jitted function, over several seeds at once."""

import jax
import jax.numpy as jnp
import optax

CONFIG = {"seeds": 2, "envs": 16, "steps": 32, "updates": 20, "epochs": 2, "minibatches": 4, "rate": 3e-3}
SIZE = 5


def reset(key):
    return jax.random.randint(key, (2,), 0, SIZE), jnp.zeros((), int)


def env_step(key, state, action):
    """Walk on a grid to its corner; an episode ends there, or after 20 steps."""
    place, time = state
    moves = jnp.array([[0, 1], [0, -1], [1, 0], [-1, 0]])
    place = jnp.clip(place + moves[action], 0, SIZE - 1)
    won = jnp.all(place == SIZE - 1)
    done = won | (time >= 20)
    state = jax.tree.map(lambda new, old: jnp.where(done, new, old), reset(key), (place, time + 1))
    return state, won.astype(float) - 0.05, done


def seen(state):
    return jax.nn.one_hot(state[0], SIZE).reshape(-1)


def init_network(key):
    keys = jax.random.split(key, 3)
    sizes = ((2 * SIZE, 32), (32, 4), (32, 1))
    return [jax.random.normal(key, size) / size[0] ** 0.5 for key, size in zip(keys, sizes, strict=True)]


def network(params, x):
    hidden = jnp.tanh(x @ params[0])
    return jax.nn.log_softmax(hidden @ params[1]), (hidden @ params[2])[..., 0]


def make_train(config):
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(config["rate"]))

    def roll_out(carry, key):
        params, state = carry
        act, move = jax.random.split(key)
        x = jax.vmap(seen)(state)
        scores, value = network(params, x)
        action = jax.random.categorical(act, scores)
        state, reward, done = jax.vmap(env_step)(jax.random.split(move, config["envs"]), state, action)
        chosen = jnp.take_along_axis(scores, action[:, None], axis=1)[:, 0]
        return (params, state), (x, action, chosen, value, reward, done)

    def advantages(played, last):
        def back(carry, at):
            gain, after = carry
            value, reward, done = at
            delta = reward + 0.99 * after * (1 - done) - value
            gain = delta + 0.99 * 0.95 * (1 - done) * gain
            return (gain, value), gain

        return jax.lax.scan(back, (jnp.zeros_like(last), last), played[3:], reverse=True)[1]

    def loss_of(params, batch):
        x, action, before, gain, target = batch
        scores, value = network(params, x)
        ratio = jnp.exp(jnp.take_along_axis(scores, action[:, None], axis=1)[:, 0] - before)
        gain = (gain - gain.mean()) / (gain.std() + 1e-8)
        policy = -jnp.minimum(ratio * gain, jnp.clip(ratio, 0.8, 1.2) * gain).mean()
        entropy = -(jnp.exp(scores) * scores).sum(-1).mean()
        return policy + 0.5 * jnp.mean((value - target) ** 2) - 0.01 * entropy

    def learn(carry, batch):
        params, state = carry
        updates, state = optimizer.update(jax.grad(loss_of)(params, batch), state)
        return (optax.apply_updates(params, updates), state), None

    def update(carry, key):
        params, state, envs = carry
        play, shuffle = jax.random.split(key)
        (_, envs), played = jax.lax.scan(roll_out, (params, envs), jax.random.split(play, config["steps"]))
        gain = advantages(played, network(params, jax.vmap(seen)(envs))[1])
        batch = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (*played[:3], gain, gain + played[3]))

        def epoch(carry, key):
            order = jax.random.permutation(key, len(batch[1])).reshape(config["minibatches"], -1)
            return jax.lax.scan(learn, carry, jax.tree.map(lambda x: x[order], batch))

        (params, state), _ = jax.lax.scan(epoch, (params, state), jax.random.split(shuffle, config["epochs"]))
        return (params, state, envs), played[4].mean()

    def train(key):
        network_key, env_key, key = jax.random.split(key, 3)
        params = init_network(network_key)
        envs = jax.vmap(reset)(jax.random.split(env_key, config["envs"]))
        carry = params, optimizer.init(params), envs
        return jax.lax.scan(update, carry, jax.random.split(key, config["updates"]))[1]

    return train


if __name__ == "__main__":
    train = jax.jit(jax.vmap(make_train(CONFIG)))
    rewards = train(jax.random.split(jax.random.key(30), CONFIG["seeds"]))
    for number in range(0, CONFIG["updates"], 5):
        print(f"update {number}: reward {rewards[:, number].mean():.2f}")
    print("after the last:", " ".join(f"{reward:.2f}" for reward in rewards[:, -1]))
