"""CartPole as functions of arrays: a pole on a cart, to be kept upright by pushes to the left or to the right.

The equations are those of Barto, Sutton and Anderson, "Neuronlike adaptive elements that can solve difficult learning
control problems" (1983), with the constants that are usual since.
"""

import jax
import jax.numpy as jnp

import jitclient


def reset(key):
    """A state near the middle: position, speed, angle and angular speed, float32[4]."""
    return jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05)


def step(state, action, key):
    """The state 20 ms later, and whether the pole fell; if it did, the state is a new one."""
    _, speed, angle, turn = state
    force = jnp.where(action == 1, 10.0, -10.0)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    push = (force + 0.05 * turn**2 * sin) / 1.1
    turning = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
    after = state + 0.02 * jnp.array([speed, push - 0.05 * turning * cos / 1.1, turn, turning])
    fell = (jnp.abs(after[0]) > 2.4) | (jnp.abs(after[2]) > 0.2095)
    return jnp.where(fell, reset(key), after), fell


def advantages(values, last, fell, discount=0.99, trace=0.95):
    """Generalised advantage estimates of a roll-out in which each step earns 1 (Schulman et al., 2015).

    Args:
        values: what each state was held to be worth, float32[steps, environments].
        last: the same of the states after the last step, float32[environments].
        fell: whether each step ended its episode, bool[steps, environments].
        discount: what a reward is worth one step later.
        trace: how far estimates look ahead.
    """

    def back(carry, each):
        following, gain = carry
        value, ended = each
        surprise = 1.0 + discount * following * (1 - ended) - value
        gain = surprise + discount * trace * (1 - ended) * gain
        return (value, gain), gain

    _, gains = jax.lax.scan(back, (last, jnp.zeros_like(last)), (values, fell), reverse=True)
    return gains


@jitclient.jit(static_argnames="steps")
def push_at_random(key, steps):
    """How many of so many random pushes end with the pole on the ground."""

    def push(state, key):
        return step(state, jax.random.bernoulli(key), key)

    return jax.lax.scan(push, reset(key), jax.random.split(key, steps))[1].sum()


if __name__ == "__main__":
    print(f"1000 random pushes let the pole fall {push_at_random(jax.random.key(0), steps=1000)} times")
