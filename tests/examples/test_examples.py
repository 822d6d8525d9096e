"""Each example, README's too, runs as its user would run it, and a second run of it traces and compiles nothing."""

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ..conftest import HASTY

TOP = Path(__file__).parents[2]
EXAMPLES = TOP / "examples"
NAMES = {path.stem for path in EXAMPLES.glob("*.py")}
RAISING = {"nnx_graph_updates": 1}
"""Example -> how many of its functions raise: the daemon, too, traces these in each process."""

WARN_WHEN_IMPORTED = {"distrax_mixture"}
"""Examples whose libraries use what their own dependencies deprecate."""

READ_THE_ENVIRONMENT = {"numpyro_nuts"}
"""Examples that declare it, and are traced in the first process itself."""

ALONE = {"data_parallel"}
"""Examples without plain JAX beside them: on two cores, XLA may end a process whose steps on eight devices overlap."""

POOLS = {"ppo_sweep", "sweep"}
"""Examples without plain JAX beside them: their tasks run in processes that do not know of `RUN_PLAIN`."""

IN_CI = {"callbacks", "cartpole", "equinox_loop", "haiku_mlp", "nnx_graph_updates", "numpyro_svi", "training_loop"}
"""Examples that CI has time for."""

RUN_PLAIN = """
import pathlib, runpy, sys
import jax
import jitclient

jitclient.install = lambda: None
jitclient.jit = lambda *fun, deps=None, **keywords: jax.jit(*fun, **keywords)
del sys.argv[0]
sys.path.insert(0, str(pathlib.Path(sys.argv[0]).parent))
runpy.run_path(sys.argv[0], run_name="__main__")
"""

RUN_NOTEBOOK = """
import json, pathlib, sys

cells = json.loads(pathlib.Path(sys.argv[1]).read_text())["cells"]
namespace = {"__name__": "__main__"}
for number, cell in enumerate(cells):
    if cell["cell_type"] == "code":
        exec(compile("".join(cell["source"]), f"cell {number}", "exec"), namespace)
"""


@pytest.fixture(scope="module")
def own_daemon(new_daemon: Callable[..., Any]) -> Iterator[str]:
    env = {"JAX_NUM_CPU_DEVICES": "8", "XLA_FLAGS": HASTY}
    with tempfile.TemporaryDirectory(prefix="js-") as folder, new_daemon(f"unix:{folder}/d.sock", env=env):
        yield f"unix:{folder}/d.sock"


@pytest.fixture
def address(own_daemon: str, counts: Callable[..., dict[str, Any]], request: pytest.FixtureRequest) -> Iterator[str]:
    """The daemon of the examples; nothing may be run outside it, nor traced."""
    before = counts(own_daemon)
    yield own_daemon
    after = counts(own_daemon)
    assert after["local_runs"] == before["local_runs"]
    may_trace = any(name in request.node.name for name in READ_THE_ENVIRONMENT)
    assert after["client_traces"] - before["client_traces"] == may_trace


def run(address: str, *arguments: str, warns: bool = False, seed: int = 0) -> str:
    """Return the text that a fresh process prints, which must not warn."""
    filters = ["-W", "error", *(["-W", "ignore::DeprecationWarning"] if warns else [])]
    done = subprocess.run(
        [sys.executable, *filters, *arguments],
        env={**os.environ, "JITSERVER_ADDRESS": address, "PYTHONHASHSEED": str(seed), "XLA_FLAGS": HASTY},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), f"{done.stdout}\n{done.stderr}"
    return done.stdout


def made(counted: dict[str, Any]) -> tuple[int, ...]:
    return tuple(counted[name] for name in ("misses", "traces", "compiles", "client_traces"))


def found_in(output: str) -> list[str]:
    """The words of an output, without lines about time."""
    return [word for line in output.splitlines() if not re.search(r"\d m?s$", line) for word in line.split()]


def test_a_loop_on_eight_devices_learns_and_its_rerun_makes_nothing(
    address: str, counts: Callable[..., dict[str, Any]]
) -> None:
    printed = run(address, str(EXAMPLES / "data_parallel.py"))
    losses = [float(line.split()[-1]) for line in printed.splitlines() if "loss" in line]
    assert losses[-1] < losses[0] / 10
    assert "on 8 devices" in printed
    found = counts(address)
    assert run(address, str(EXAMPLES / "data_parallel.py")) == printed
    assert made(counts(address)) == made(found)


def missing(name: str) -> list[str]:
    """Return the packages that an example needs and this environment lacks."""
    nodes = list(ast.walk(ast.parse((EXAMPLES / f"{name}.py").read_text())))
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    packages = sorted({module.partition(".")[0] for module in imported} - NAMES)
    return [package for package in packages if not importlib.util.find_spec(package)]


def values_of(words: list[str]) -> list[float | str]:
    """Numbers with a fraction as floats, whatever is written behind them."""
    numbers = [re.match(r"-?\d+\.\d+", word) for word in words]
    return [float(number[0]) if number else word for number, word in zip(numbers, words, strict=True)]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in IN_CI else [pytest.mark.thorough])
        for name in sorted(NAMES - ALONE - POOLS)
    ],
)
def test_an_example_gives_what_plain_jax_gives_and_its_rerun_makes_nothing(
    name: str, address: str, counts: Callable[..., dict[str, Any]]
) -> None:
    if needed := missing(name):
        pytest.skip(f"NOT RUN: examples/{name}.py needs {needed}")
    program, warns = str(EXAMPLES / f"{name}.py"), name in WARN_WHEN_IMPORTED
    plain = found_in(run(address, "-c", RUN_PLAIN, program, warns=warns))
    first = found_in(run(address, program, warns=warns, seed=1))
    for value, expected in zip(values_of(first), values_of(plain), strict=True):
        assert value == (expected if isinstance(expected, str) else pytest.approx(expected, rel=0.01, abs=0.001))
    after_first = made(counts(address))
    assert found_in(run(address, program, warns=warns, seed=2)) == first
    traces, loaded, *others = after_first
    raising = RAISING.get(name, 0)
    assert made(counts(address)) == (traces + raising, loaded + raising, *others)


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", sorted(POOLS))
def test_a_sweep_in_a_pool_makes_nothing_in_its_second_run(
    name: str, address: str, counts: Callable[..., dict[str, Any]]
) -> None:
    first = run(address, str(EXAMPLES / f"{name}.py"), seed=1)
    assert re.search(r"best rate 0\.\d+\n$", first)
    after_first = made(counts(address))
    assert run(address, str(EXAMPLES / f"{name}.py"), seed=2) == first
    assert made(counts(address)) == after_first


def test_the_list_of_examples_is_complete_and_names_tests_that_exist() -> None:
    files = {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*") if path.suffix in (".py", ".ipynb")}
    rows = [line.split("|")[1:-1] for line in (EXAMPLES / "README.md").read_text().splitlines() if line[:1] == "|"]
    _, *columns = zip(*rows[2:], strict=True)
    named, tests = (set(re.findall(r"\]\(([^)]+)\)", " ".join(column))) for column in columns)
    assert named == files
    assert tests
    assert not [test for test in tests if not (EXAMPLES / test).is_file()]


def test_the_notebook_runs_and_its_rerun_makes_nothing(address: str, counts: Callable[..., dict[str, Any]]) -> None:
    notebook = str(EXAMPLES / "notebook.ipynb")
    first = run(address, "-c", RUN_NOTEBOOK, notebook)
    assert "global SCALE: 2.0 -> 3.0" in first
    assert "computing the basis" in first
    after_first = made(counts(address))
    again = run(address, "-c", RUN_NOTEBOOK, notebook)
    assert "hit (L1" in again
    assert "computing the basis" not in again
    assert made(counts(address)) == after_first


def test_the_notebook_is_stored_without_outputs() -> None:
    cells = json.loads((EXAMPLES / "notebook.ipynb").read_text())["cells"]
    assert not [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")]


def test_two_programs_share_data_weights_and_a_program(address: str, counts: Callable[..., dict[str, Any]]) -> None:
    train, evaluate = str(EXAMPLES / "shared" / "train.py"), str(EXAMPLES / "shared" / "evaluate.py")
    with pytest.raises(AssertionError, match=r"run train\.py first"):
        run(address, evaluate)
    trained = run(address, train).splitlines()
    assert trained[0] == "loading the data"
    after_training = made(counts(address))
    assert run(address, evaluate).splitlines()[-1] == trained[-1]  # the same loss
    assert run(address, train).splitlines() == trained[1:]  # nothing is loaded again
    assert made(counts(address)) == after_training


def test_readmes_example_is_compiled_once(address: str, counts: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    program = re.search(r"```python\n(# fit\.py\n.*?)```", (TOP / "README.md").read_text(), re.DOTALL)
    assert program, "README has no program named fit.py"
    (tmp_path / "fit.py").write_text(program[1])
    before = made(counts(address))
    assert float(run(address, str(tmp_path / "fit.py"))) < 1e-6
    after_first = made(counts(address))
    assert [now - then for now, then in zip(after_first, before, strict=True)] == [1, 1, 1, 0]
    run(address, str(tmp_path / "fit.py"))
    assert made(counts(address)) == after_first
