"""Functions of `jax.vjp` and `jax.linearize`, from a jitted one: only a trace has them, so each process traces."""

from collections.abc import Callable
from typing import Any

import pytest

PROGRAM = """
    import json, jax, jax.numpy as jnp, jitclient

    def cube(y, w):
        return jnp.sin(y) ** 3 * w

    def numbers(tree):
        return [jnp.asarray(leaf).tolist() for leaf in jax.tree.leaves(tree)]

    {switch}
    make = jit(lambda x, w: jax.vjp(lambda y: cube(y, w), x))
    value, pull = make(2.0, jnp.ones(3))
    other = make(3.0, jnp.ones(3))[1]
    apply = jit(lambda pull, cotangent: pull(cotangent))
    tangent, push = jit(lambda x: jax.linearize(lambda y: cube(y, 2.0), x))(2.0)
    found = [
        numbers(value),
        numbers(apply(pull, jnp.ones(3))),
        numbers(apply(other, jnp.ones(3))),
        numbers(jax.tree.map(lambda one, two: one + two, pull, other)),
        numbers(jit(lambda push, tangent: push(tangent))(push, 1.5)),
        numbers(jit(lambda tangent: push(tangent))(2.0)),
        numbers(apply(jit(lambda pull: pull)(pull), jnp.ones(3))),
        jax.tree.structure(pull) == jax.tree.structure(other),
        numbers(pull(jnp.full(3, 2.0))),
        numbers(push(1.0)),
    ]
    print(json.dumps(found))
"""
OURS, PLAIN = "jit = jitclient.jit", "jit = jax.jit"


def test_each_process_traces_them_and_gets_what_jax_gives(own: Any) -> None:
    def run(switch: str, seed: str) -> Any:
        return own.run(PROGRAM.format(switch=switch), PYTHONHASHSEED=seed)

    expected = run(PLAIN, "0")
    with own.serving():
        assert run(OURS, "1") == expected
        first = own.counts()
        assert run(OURS, "2") == expected
        second = own.counts()
    assert second["client_traces"] == 2 * first["client_traces"] > 0
    assert second["local_runs"] == 0
    assert second["traces"] == first["traces"], "the daemon remembers what it cannot trace"
    assert second["compiles"] == first["compiles"], "the programs are shared"


CHANGED = """
    import json, sys, jax, jax.numpy as jnp, jitclient

    {switch}
    TABLE = [1]
    pull = jit(lambda x: jax.vjp(lambda y: y[TABLE[0]] * 902, x))(jnp.ones(3))[1]
    apply = jit(lambda pull: pull(jnp.float32(1))[0])
    {change}
    print(json.dumps([jnp.asarray(pull(jnp.float32(1))[0]).tolist(), jnp.asarray(apply(pull)).tolist()]))
"""


@pytest.mark.parametrize("change", ["TABLE[0] = 2", "jax.config.update('jax_enable_x64', True)"])
def test_they_stay_what_they_were_whatever_changes_later(
    change: str, run_script: Callable[..., Any], shared_daemon: str
) -> None:
    found = [run_script(CHANGED.format(switch=switch, change=change)) for switch in (PLAIN, OURS)]
    assert found == [[[0.0, 902.0, 0.0]] * 2] * 2


LOOKS_BACK = """
    import json, jax, jax.numpy as jnp, jitclient

    {switch}
    history = []

    @jit
    def pull_of(x):
        start = x if not history else x + history[-1](1.0)[0]
        return jax.vjp(jnp.sin, start)[1]

    pull = pull_of(0.5)
    history.append(pull)
    print(json.dumps([float(pull(1.0)[0]), float(pull_of(jnp.ones(()))(1.0)[0])]))
"""


def test_a_function_may_look_inside_what_it_made_before(run_script: Callable[..., Any], shared_daemon: str) -> None:
    plain, ours = (run_script(LOOKS_BACK.format(switch=switch)) for switch in (PLAIN, OURS))
    assert ours == plain
