"""What `jax.vjp` and `jax.linearize` give, out of a jitted function: only a trace knows what is inside."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
        {look}
    ]
    print(json.dumps(found))
"""
OURS, PLAIN = "jit = jitclient.jit", "jit = jax.jit"
LOOK = "numbers(pull(jnp.full(3, 2.0))), numbers(push(1.0))"


def test_a_second_process_traces_nothing_and_who_looks_inside_gets_what_it_is(
    new_daemon: Callable[..., Any],
    counts: Callable[..., dict[str, Any]],
    run_script: Callable[..., Any],
    tmp_path: Path,
) -> None:
    def run(switch: str, look: str, seed: str) -> Any:
        program = PROGRAM.format(switch=switch, look=look)
        return run_script(program, env={"JITSERVER_ADDRESS": address, "PYTHONHASHSEED": seed})

    address = f"unix:{tmp_path}/s"
    expected = run(PLAIN, LOOK, "0")
    with new_daemon(address):
        assert run(OURS, "", "1") == expected[:-2]
        first = counts(address)
        assert (first["traces"], first["local_runs"]) == (4, 0)
        assert run(OURS, "", "2") == expected[:-2]
        second = counts(address)
        assert [second[name] - first[name] for name in ("traces", "client_traces", "local_runs", "misses")] == [0] * 4
        assert json.dumps(run(OURS, LOOK, "3")) == json.dumps(expected)
        assert counts(address)["client_traces"] == second["client_traces"] + 2, "one for each that is looked into"
