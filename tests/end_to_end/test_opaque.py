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


CHANGED = """
    import json, sys, jax, jax.numpy as jnp, jitclient

    TABLE = [1]
    pull = jitclient.jit(lambda x: jax.vjp(lambda y: y[TABLE[0]] * 902, x))(jnp.ones(3))[1]
    apply = jitclient.jit(lambda pull: pull(1.0)[0])
    {change}

    def outcome(call):
        try:
            return jnp.asarray(call()).tolist()
        except jitclient.CaptureError as error:
            return "another function by now" in str(error)

    print(json.dumps([outcome(lambda: pull(1.0)[0]), outcome(lambda: apply(pull))]))
"""


def test_what_has_changed_since_is_refused_and_spoils_nothing_for_others(
    new_daemon: Callable[..., Any], run_script: Callable[..., Any], tmp_path: Path
) -> None:
    address = f"unix:{tmp_path}/s"

    def run(change: str) -> Any:
        return run_script(CHANGED.format(change=change), env={"JITSERVER_ADDRESS": address})

    with new_daemon(address):
        assert run("TABLE[0] = 2") == [True, True]
        assert run("jax.config.update('jax_enable_x64', True)") == [True, True]
        assert run("") == [[0.0, 902.0, 0.0]] * 2


def test_a_function_may_look_inside_what_it_made_before(run_script: Callable[..., Any], daemon: str) -> None:
    found = run_script(
        """
        import json, jax, jax.numpy as jnp, jitclient
        history = []

        @jitclient.jit
        def pull_of(x):
            start = x if not history else x + history[-1](1.0)[0]
            return jax.vjp(jnp.sin, start)[1]

        pull = pull_of(0.5)
        history.append(pull)
        try:
            print(json.dumps(float(pull(1.0)[0])))
        except jitclient.CaptureError as error:
            print(json.dumps(str(error)))
        """
    )
    assert "another function by now" in found
