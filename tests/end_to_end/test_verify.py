"""JITSERVER_VERIFY says when a trace of the caller's decides: here of functions that no key tells apart.

An installed package computes with the order of a set, which differs between processes with different hash seeds.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
    import json
    import sys
    import warnings
    import jax
    import jax.numpy as jnp
    import numpy as np
    import numpyro.distributions as dist
    import jitclient

    def place(x):
        return x + dist.Normal.gather_pytree_data_fields().index("loc")

    def called(x):
        callback = (np.sin, np.cos)[dist.Normal.gather_pytree_data_fields().index("loc")]
        return jax.pure_callback(callback, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    def another_order(x):
        parts = {name: jnp.sin(x) if name == "loc" else jnp.cos(x) for name in dist.Normal.gather_pytree_data_fields()}
        return parts["loc"] * 2 + parts["scale"]

    def harmless(x):
        return jnp.where(x > 0, x, 2 * x) + jax.pure_callback(np.tanh, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    def outcome(fun, jit):
        try:
            return round(float(jit(fun)(1.0)), 4)
        except jitclient.ProgramsDiffer as error:
            return f"ProgramsDiffer: {error}"

    functions = (place, called, another_order, harmless)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        ours, plain = ({fun.__name__: outcome(fun, jit) for fun in functions} for jit in (jitclient.jit, jax.jit))
    said = [str(each.message) for each in warned]
    print(json.dumps([ours, plain, {name: [text for text in said if text.startswith(name + " ")] for name in ours}]))
"""

ORDER = "import numpyro.distributions as d; print(d.Normal.gather_pytree_data_fields())"


def _order(seed: int) -> str:
    done = subprocess.run(
        [sys.executable, "-c", ORDER], env={"PYTHONHASHSEED": str(seed)}, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.fixture(scope="module")
def other_seed() -> int:
    """A hash seed that gives another order than 1, which is that of the daemons."""
    first = _order(1)
    return next(seed for seed in range(2, 40) if _order(seed) != first)


@pytest.fixture
def run(new_daemon: Callable[..., Any], short_path: Path, run_script: Callable[..., Any]) -> Any:
    """Runs the program with a daemon of the test's own."""
    address = f"unix:{short_path}/d.sock"

    def run(seed: int, verify: str) -> Any:
        environment = {"PYTHONHASHSEED": str(seed), "JITSERVER_VERIFY": verify, "JITSERVER_FALLBACK": "local"}
        return run_script(PROGRAM, env={"JITSERVER_ADDRESS": address, **environment})

    with new_daemon(address, env={"PYTHONHASHSEED": "1"}):
        yield run


def test_a_new_program_that_differs_is_no_ones(run: Any, other_seed: int) -> None:
    ours, plain, said = run(other_seed, "new")
    assert ours == plain
    [text] = said["place"]
    assert "place is traced in each process: the daemon's trace differs" in text
    assert "stablehlo.constant dense<1.0" in text
    assert "stablehlo.constant dense<0.0" in text
    assert "'numpy.cos' here and 'numpy.sin' on the daemon" in said["called"][0]
    assert said["another_order"] == said["harmless"] == [], "the order of a trace does not count"
    for seed in (other_seed, 1):
        ours, plain, said = run(seed, "new")
        assert ours == plain
        assert said["place"] == [], "the daemon remembers it"


def test_always_finds_a_program_that_is_not_the_own_one(run: Any, other_seed: int) -> None:
    ours, plain, _ = run(1, "new")
    assert ours == plain
    ours, _, _ = run(1, "always")
    assert ours == plain
    ours, expected, said = run(other_seed, "always")
    for name in ("place", "called"):
        assert "ProgramsDiffer" in ours[name]
        assert f"Run `jitserver cache rm {name}` to remove the program" in ours[name]
    for name in ("another_order", "harmless"):
        assert ours[name] == expected[name], "the order of a trace does not count"
    assert not any(said.values())


def test_off_takes_what_the_daemon_makes_for_those_alone_who_say_so(run: Any, other_seed: int) -> None:
    ours, plain, said = run(other_seed, "off")
    assert (ours["place"], plain["place"]) == (1.0, 2.0)
    assert ours["harmless"] == plain["harmless"]
    assert not any(said.values())
    ours, plain, _ = run(other_seed, "new")
    assert ours == plain


DECLARED = """
    import json
    import os
    import jitclient

    @jitclient.jit(deps=["UNIT"])
    def scaled(x):
        os.environ["TRACED"] = "yes"
        return {"scaled": x * float(os.environ["GAIN"])}

    try:
        outcome = float(scaled(3.0)["scaled"])
    except jitclient.ProgramsDiffer as error:
        outcome = f"ProgramsDiffer: {error}"
    print(json.dumps(["TRACED" in os.environ, outcome]))
"""


def test_always_checks_the_programs_of_other_clients_own_traces(
    new_daemon: Callable[..., Any], short_path: Path, run_script: Callable[..., Any]
) -> None:
    address = f"unix:{short_path}/d.sock"

    def run(gain: str, verify: str, seed: str) -> Any:
        env = {"UNIT": "m", "GAIN": gain, "JITSERVER_VERIFY": verify, "PYTHONHASHSEED": seed}
        return run_script(DECLARED, env={"JITSERVER_ADDRESS": address, **env})

    with new_daemon(address):
        assert run("2", "new", "1") == [True, 6.0]
        assert run("2", "new", "2") == [False, 6.0]
        assert run("2", "always", "3") == [True, 6.0]
        is_traced, error = run("5", "always", "4")
    assert is_traced
    assert "ProgramsDiffer: scaled: the cached program differs from the trace in this process" in error
