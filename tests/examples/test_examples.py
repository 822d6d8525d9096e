"""Each example, README's too, runs as its user would run it, and a second run of it traces and compiles nothing."""

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

TOP = Path(__file__).parents[2]
EXAMPLES = TOP / "examples"
NEEDS = {"equinox_loop.py": "equinox", "training_loop.py": "optax"}

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
    with tempfile.TemporaryDirectory(prefix="js-") as folder, new_daemon(f"unix:{folder}/d.sock"):
        yield f"unix:{folder}/d.sock"


@pytest.fixture
def address(own_daemon: str, counts: Callable[..., dict[str, Any]]) -> Iterator[str]:
    """The daemon of the examples; afterwards, nothing may have been traced or run outside it."""
    yield own_daemon
    found = counts(own_daemon)
    assert (found["client_traces"], found["local_runs"]) == (0, 0)


def run(address: str, *arguments: str) -> str:
    """What a fresh process prints, which has nothing to warn of."""
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        env={**os.environ, "JITSERVER_ADDRESS": address},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), f"{done.stdout}\n{done.stderr}"
    return done.stdout


def made(counted: dict[str, Any]) -> tuple[int, int, int]:
    return counted["misses"], counted["traces"], counted["compiles"]


def test_every_example_has_a_test() -> None:
    there = {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*") if path.suffix in (".py", ".ipynb")}
    shared = {"shared/evaluate.py", "shared/model.py", "shared/train.py"}
    assert there == {"training_loop.py", "equinox_loop.py", "notebook.ipynb", *shared}


@pytest.mark.parametrize("name", ["training_loop.py", "equinox_loop.py"])
def test_a_loop_learns_and_its_rerun_makes_nothing(
    name: str, address: str, counts: Callable[..., dict[str, Any]]
) -> None:
    if importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"NOT RUN: examples/{name} needs {NEEDS[name]}, which the extra [test] installs")
    first = run(address, str(EXAMPLES / name))
    losses = [float(line.split()[-1]) for line in first.splitlines() if "loss" in line]
    assert losses[-1] < losses[0] / 10
    after_first = made(counts(address))
    again = run(address, str(EXAMPLES / name))
    assert [line for line in again.splitlines() if "loss" in line] == [
        line for line in first.splitlines() if "loss" in line
    ]
    assert made(counts(address)) == after_first


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
    assert [now - then for now, then in zip(after_first, before, strict=True)] == [1, 1, 1]
    run(address, str(tmp_path / "fit.py"))
    assert made(counts(address)) == after_first
