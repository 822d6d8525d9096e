"""Processes with other hash seeds make one digest of one program of a library."""

from collections.abc import Callable
from typing import Any

import pytest

HEAD = """
import json
import jax, jax.numpy as jnp, numpy as np
from jitclient.jaxside.evidence import _operations
from jitclient.jaxside.jaxpr_digest import order_free_digest

def describe(fun):
    # A callback that raises, for equinox: its closure has a number of this process.
    return b"raises" if getattr(fun, "__qualname__", "") == "_error.<locals>.raises" else None

def told(fun, *args):
    jaxpr, text = jax.make_jaxpr(fun)(*args), jax.jit(fun).lower(*args).as_text()
    digests = [order_free_digest(jaxpr, describe, sums_in_any_order=free) for free in (False, True)]
    operations = "\\n".join(_operations(text))
    print(json.dumps([text, *[digest and digest.hex() for digest in digests], operations]))
"""

FLAX = """
import flax.linen as nn, optax

class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(nn.relu(nn.Dense(8)(x)))

def step(params, state, x):
    grads = jax.grad(lambda params: jnp.mean(Net().apply(params, x) ** 2))(params)
    updates, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, updates), state

x, optimizer = jnp.ones((4, 2)), optax.adam(1e-3)
params = Net().init(jax.random.key(0), x)
told(step, params, optimizer.init(params), x)
"""

DIFFRAX = """
import diffrax

def solve(y, rate):
    term, steps = diffrax.ODETerm(lambda t, y, rate: -rate * y), diffrax.PIDController(1e-3, 1e-3)
    times = diffrax.SaveAt(ts=jnp.linspace(0, 1, 5))
    found = diffrax.diffeqsolve(term, diffrax.Tsit5(), 0.0, 1.0, 0.1, y, rate, saveat=times, stepsize_controller=steps)
    return found.ys

told(solve, jnp.ones(2), jnp.float32(2))
"""

SVI = """
import numpyro
import numpyro.distributions as dist
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

def model(x, y):
    weights = numpyro.sample("weights", dist.Normal(jnp.zeros(3), 1).to_event(1))
    bias = numpyro.sample("bias", dist.Normal(0.0, 1.0))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    numpyro.sample("obs", dist.Normal(x @ weights + bias, scale), obs=y)

svi = SVI(model, AutoNormal(model), numpyro.optim.Adam(0.05), Trace_ELBO())
x, y = jnp.ones((8, 3)), jnp.ones(8)
told(svi.update, svi.init(jax.random.PRNGKey(0), x, y), x, y)
"""


def in_seeds(run_script: Callable[..., Any], source: str, n: int) -> list[set[str]]:
    told = [run_script(HEAD + source, env={"PYTHONHASHSEED": str(seed)}) for seed in range(n)]
    return [set(parts) for parts in zip(*told, strict=True)]


@pytest.mark.parametrize("source", [FLAX, DIFFRAX], ids=["flax", "diffrax"])
def test_the_hash_seed_does_not_count(run_script: Callable[..., Any], source: str) -> None:
    _, digests, with_free_sums, operations = in_seeds(run_script, source, 2)
    assert len(digests) == len(with_free_sums) == len(operations) == 1
    assert None not in digests | with_free_sums


def test_numpyro_adds_up_its_loss_in_the_order_of_a_set(run_script: Callable[..., Any]) -> None:
    """So its programs round differently, and are the same only for who says that this does not count."""
    texts, digests, with_free_sums, operations = in_seeds(run_script, SVI, 4)
    assert len(texts) > 1
    assert len(digests) > 1
    assert None not in digests
    assert len(with_free_sums) == len(operations) == 1
    assert None not in with_free_sums
