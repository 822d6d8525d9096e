"""A few steps of optax, flax and equinox, which take seconds to import."""

import equinox as eqx
import flax
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

X = np.linspace(-1.0, 1.0, 8, dtype=np.float32).reshape(4, 2)
Y = X.sum(axis=1, keepdims=True)


def case_optax(jit):
    def make(rate):
        tx = optax.adam(rate)

        def step(w, state):
            updates, state = tx.update(jax.grad(lambda w: ((X @ w - Y) ** 2).mean())(w), state)
            return optax.apply_updates(w, updates), state

        w = jnp.zeros((2, 1))
        return step, w, tx.init(w)

    values = []
    for rate in (0.1, 0.2):
        step, w, state = make(rate)
        step = jit(step)
        for _ in range(2):
            w, state = step(w, state)
        values.append((w, type(state[0]).__name__, jax.tree.leaves(state)))
    return values


@flax.struct.dataclass
class State:
    w: jax.Array
    count: int
    name: str = flax.struct.field(pytree_node=False, default="s")


def case_flax_struct(jit):
    step = jit(lambda s: s.replace(w=s.w * 2, count=s.count + 1, name=s.name + "+"))
    got = step(step(State(X, 0)))
    return type(got).__name__, got.w, got.count, got.name


class Net(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x):
        return nn.Dense(1)(nn.relu(nn.Dense(self.width)(x)))


def case_flax_linen(jit):
    values = []
    for width in (2, 3):
        net = Net(width)
        params = jit(net.init)(jax.random.key(0), X)
        values.append((jit(net.apply)(params, X), jit(jax.grad(lambda p, n=net: (n.apply(p, X) ** 2).sum()))(params)))
    return values


class Affine(eqx.Module):
    weight: jax.Array
    bias: float
    name: str = eqx.field(static=True)

    def __call__(self, x):
        return x @ self.weight + self.bias * len(self.name)


def case_equinox(jit):
    f = jit(lambda module, x: (module(x), jax.tree.map(lambda leaf: leaf * 2, module)))
    got = [f(Affine(jnp.ones((2, 1)), 0.5, name), X) for name in ("ab", "abc")]
    return [(value, type(module).__name__, module.weight, module.bias, module.name) for value, module in got]
