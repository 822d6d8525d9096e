"""Whatever a function of `nnx.jit` does to its modules happens to yours, although it ran on the daemon."""

import jax
import jax.numpy as jnp
from flax import nnx

import jitclient

jitclient.install()  # `nnx.jit` is jitclient's from here on


class Pair(nnx.Module):
    """Two layers and a count."""

    def __init__(self, rngs):
        self.first = nnx.Linear(2, 2, rngs=rngs)
        self.second = nnx.Linear(2, 2, rngs=rngs)
        self.calls = nnx.Variable(jnp.array(0))


@nnx.jit
def change_values(pair):
    pair.calls[...] += 1


@nnx.jit
def add_and_remove(pair):
    pair.scale, pair.note = nnx.Param(jnp.ones(2)), "only text"
    del pair.calls


@nnx.jit
def swap(pair):
    pair.first, pair.second = pair.second, pair.first


@nnx.jit
def share(pair):
    pair.second.kernel = pair.first.kernel


@nnx.jit
def replace(pair):
    pair.second = nnx.Sequential(pair.first, nnx.relu)
    return pair.second


pair = Pair(nnx.Rngs(0))
first = pair.first
for _ in range(3):
    change_values(pair)
print(f"values: {pair.calls[...]} calls")
add_and_remove(pair)
print(f"attributes: scale {pair.scale[...]}, note {pair.note!r}, calls there: {hasattr(pair, 'calls')}")
swap(pair)
print(f"submodules: the second is what the first was: {pair.second is first}")
share(pair)
print(f"references: one kernel for both: {pair.second.kernel is pair.first.kernel}")
print(f"results: they may be what the function made of its arguments: {replace(pair) is pair.second}")

# A Param is a tree to JAX, not an array: jitted functions take it, and functions of jax.numpy look at its value.
param = nnx.Param(jnp.arange(3.0))
print(f"a Param in jax.jit: {type(jax.jit(lambda x: x)(param)).__name__}, in jnp.sum: {jnp.sum(param)}")
try:
    jax.jit(jnp.zeros)(param)
except TypeError as error:
    print(f"where it cannot be: {str(error).splitlines()[0]}")
