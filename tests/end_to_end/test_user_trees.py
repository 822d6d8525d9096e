"""Trees of the libraries people use come and go as instances of the caller's own classes."""

from collections.abc import Callable
from typing import Any

import pytest

PROGRAMS = {
    "flax.struct": """
        import flax.struct

        @flax.struct.dataclass
        class State:
            w: jax.Array
            count: int
            name: str = flax.struct.field(pytree_node=False)

            def grown(self):
                return self.replace(w=self.scaled(2.0), count=self.count + 1)

            def scaled(self, factor):
                return self.w * factor

        make = lambda: State(w=jnp.arange(3.0), count=1, name="s")
        fun = lambda state, x: (state.grown(), state.w @ x)
    """,
    "chex": """
        import chex

        @chex.dataclass
        class State:
            w: chex.Array
            b: chex.Array

            def apply(self, x):
                return self.w * x + self.b

        make = lambda: State(w=jnp.arange(3.0), b=jnp.ones(3))
        fun = lambda state, x: (state.replace(b=state.apply(x)), state.b.sum())
    """,
    "equinox": """
        import equinox as eqx

        class Base(eqx.Module):
            scale: float = eqx.field(static=True)

            def scaled(self, x):
                return x * self.scale

        class Layer(Base):
            w: jax.Array
            inner: eqx.nn.Linear

            def __init__(self, key):
                super().__init__(scale=2.0)
                self.w = jnp.arange(3.0)
                self.inner = eqx.nn.Linear(3, 3, key=key)

            def __call__(self, x):
                return self.scaled(self.inner(x)) + self.w

        make = lambda: Layer(jax.random.PRNGKey(0))
        fun = lambda layer, x: (eqx.tree_at(lambda l: l.w, layer, layer.w + 1), layer(x))
    """,
    "flax.nnx": """
        from flax import nnx

        class Model(nnx.Module):
            def __init__(self, rngs):
                self.linear = nnx.Linear(3, 3, rngs=rngs)
                self.factor = 2.0

            def __call__(self, x):
                return self.linear(x) * self.factor

        graph, make_state = nnx.split(Model(nnx.Rngs(0)))
        make = lambda: make_state
        fun = lambda state, x: (jax.tree.map(lambda p: p * 0.5, state), nnx.merge(graph, state)(x))
    """,
    "optax": """
        import optax

        optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-2))
        make = lambda: (params := {"w": jnp.arange(3.0)}, optimizer.init(params))

        def fun(both, x):
            params, state = both
            gradients = jax.grad(lambda p: jnp.sum((p["w"] * x) ** 2))(params)
            updates, state = optimizer.update(gradients, state, params)
            return (optax.apply_updates(params, updates), state), params["w"].sum()
    """,
    "register_static": """
        @jax.tree_util.register_static
        class Config:
            def __init__(self, n):
                self.n = n
            def __eq__(self, other):
                return isinstance(other, Config) and self.n == other.n
            def __hash__(self):
                return hash(self.n)

        make = lambda: (Config(3), jnp.arange(3.0))
        fun = lambda both, x: (both, both[1] * both[0].n + x)
    """,
}

COMMON = """
    import json, jax, jax.numpy as jnp, numpy as np, jitclient
    {program}
    x = np.linspace(0, 1, 3, dtype=np.float32)
    ours, theirs = make(), make()
    for _ in range(2):
        ours, ours_y = jitclient.jit(fun)(ours, x)
        theirs, theirs_y = jax.jit(fun)(theirs, x)
    our_leaves, our_tree = jax.tree.flatten((ours, ours_y))
    their_leaves, their_tree = jax.tree.flatten((theirs, theirs_y))
    assert our_tree == their_tree, (our_tree, their_tree)
    assert type(ours) is type(theirs)
    for mine, yours in zip(our_leaves, their_leaves, strict=True):
        np.testing.assert_array_equal(np.asarray(mine), np.asarray(yours))

    captured = make()
    closing_over = lambda x: fun(captured, x)[1]
    np.testing.assert_array_equal(np.asarray(jitclient.jit(closing_over)(x)), np.asarray(jax.jit(closing_over)(x)))
    print(json.dumps(len(our_leaves)))
"""


@pytest.mark.parametrize("library", PROGRAMS)
def test_trees_of_a_library(
    library: str, run_script: Callable[..., Any], daemon: str, counts: Callable[..., dict[str, Any]]
) -> None:
    program = COMMON.format(program=PROGRAMS[library].replace("\n    ", "\n").strip())
    before = counts()
    assert run_script(program) > 0
    made = counts()
    assert made["compiles"] - before["compiles"] == 2
    assert run_script(program) > 0
    again = counts()
    assert again["traces"] == made["traces"], "a second process finds all of it"
    assert again["captures_loaded"] == made["captures_loaded"]
