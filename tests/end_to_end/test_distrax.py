"""Distributions of distrax, which flax and others are used with: a second process traces nothing."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
    import json, distrax, jax, jax.numpy as jnp, jitclient

    {switch}
    x = jnp.linspace(-1.0, 1.0, 4)
    given = distrax.Normal(jnp.float32(1.0), jnp.float32(2.0))
    made = jit(lambda x: distrax.Normal(x, jnp.abs(x) + 1.0))(x)

    def score(loc, x):
        return distrax.Transformed(distrax.Normal(loc, 1.0), distrax.Tanh()).log_prob(jnp.tanh(x)).sum()

    found = [
        jit(lambda one, x: one.log_prob(x).sum())(given, x),
        made.mean(),
        jit(lambda one, x: one.log_prob(x))(made, x),
        jit(lambda one: one.sample(seed=jax.random.key(0)))(made),
        *jit(jax.value_and_grad(score))(jnp.float32(0.5), x),
    ]
    print(json.dumps([jnp.asarray(one).tolist() for one in found]))
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("distrax") is None, reason="NOT TESTED HERE: distrax is not installed")
def test_a_second_process_traces_nothing(
    new_daemon: Callable[..., Any],
    counts: Callable[..., dict[str, Any]],
    run_script: Callable[..., Any],
    tmp_path: Path,
) -> None:
    def run(switch: str, seed: str) -> Any:
        return run_script(PROGRAM.format(switch=switch), env={"JITSERVER_ADDRESS": address, "PYTHONHASHSEED": seed})

    address = f"unix:{tmp_path}/s"
    expected = run("jit = jax.jit", "0")
    with new_daemon(address):
        assert run("jit = jitclient.jit", "1") == expected
        before = counts(address)
        assert run("jit = jitclient.jit", "2") == expected
        after = counts(address)
    for name in ("traces", "client_traces", "local_runs", "misses"):
        assert after[name] == before[name], name
