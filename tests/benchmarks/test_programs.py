"""The corpus: what counts as the same, how programs are laid out, and the verdict on programs of our own."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.corpus import listing, page
from benchmarks.corpus.comparing import Outcome, differences, is_identical
from benchmarks.corpus.preparing import code_of, recorded
from benchmarks.corpus.trial import Verdict

TOP = Path(__file__).parents[2]

PROGRAMS = {
    "warm": """
        import jax
        import jax.numpy as jnp

        @jax.jit
        def f(x):
            return jnp.sin(x).sum()

        y = f(jnp.arange(5.0))
        print("sum", y)
    """,
    "wrong": """
        import sys
        import numpy as np

        x = np.arange(3.0) + 0.1 * ("jitclient" in sys.modules)
    """,
    "drawn": """
        import sys
        import matplotlib.pyplot as plt

        plt.plot([1.0, 2.0 + ("jitclient" in sys.modules)])
    """,
    "local": """
        import jax

        @jax.jit
        def shown(x):
            jax.debug.print("x is {x}", x=x)
            return x * (hash("a") % 7)

        y = shown(1.0) > -1
    """,
    "cold": """
        import jax

        @jax.jit
        def hashed(x):
            return x * (hash("a") % 7)

        y = hashed(1.0) > 0
    """,
    "elsewhere": """
        import jax.numpy as jnp

        y = jnp.arange(3) + 1
    """,
    "broken": """
        raise ValueError("no data")
    """,
}


def tried(folder: Path, programs: dict[str, str], *options: str) -> tuple[int, dict[str, Any]]:
    for name, source in programs.items():
        lines = source.strip("\n").splitlines()
        (folder / f"{name}.py").write_text("\n".join(line[8:] for line in lines) + "\n")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "programs", str(folder), "--json", *options],
        cwd=TOP,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, {each["name"]: each for each in json.loads(done.stdout)["programs"]}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_verdicts(tmp_path: Path) -> None:
    status, found = tried(tmp_path, PROGRAMS)
    assert status == 1
    right = {name for name, each in found.items() if each["right"]}
    assert right == {"warm", "local", "cold", "elsewhere"}
    assert {name for name, each in found.items() if each["warm"]} == {"warm"}
    assert found["warm"]["identical"]
    assert found["warm"]["counts"] == {"calls": 1, "traces": 0, "client_traces": 0, "local_runs": 0, "compiles": 0}
    assert found["wrong"]["wrong"] == ["x: up to 0.1 apart, of 2"]
    assert found["drawn"]["wrong"] == ["figure 1, axes 0, 0: up to 1 apart, of 2"]
    (reason,) = found["local"]["local"]
    assert reason.startswith("shown: ")
    assert "the callbacks stay" in reason
    assert found["cold"]["counts"]["client_traces"] == 1
    assert "hashed" in found["cold"]["why"][0]
    assert found["elsewhere"]["why"] == ["nothing of it ran on the daemon"]
    assert found["broken"]["why"] == ["plain JAX: status 1: ValueError: no data"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_verdicts_with_a_helper(tmp_path: Path) -> None:
    warm = PROGRAMS["warm"]
    fresh = f"{warm}\n        import os\n        os.environ['A'] = 'b'\n"
    drawn = f"{warm}\n        import matplotlib.pyplot as plt\n        plt.plot([1, 2])\n"
    status, found = tried(tmp_path, {"warm": warm, "fresh": fresh, "drawn": drawn}, "--preloaded")
    assert status == 0
    assert [name for name, each in found.items() if each["warm"] and each["identical"]] == ["drawn", "fresh", "warm"]
    assert found["warm"]["fresh"] == []
    assert "may set environment variables" in found["fresh"]["fresh"][0]


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("x = 1\n", 1),
        ('"""Says."""\nfrom __future__ import annotations\n\nx = 1\n', 4),
        ("# says\n@one\n@other\ndef f(): pass\n", 2),
        ('"""Says."""\n', 3),
    ],
)
def test_a_line_begins_to_record(code: str, line: int) -> None:
    lines = recorded(code).splitlines()
    assert "_recording.begin(__file__)" in lines.pop(line - 1)
    assert [each for each in lines if each] == [each for each in code.splitlines() if each]


@pytest.mark.parametrize(
    ("plain", "other", "same"),
    [
        ("loss 0.12345678", "loss 0.12345", True),
        ("loss 0.12345678", "loss 0.1236", False),
        ("value 1.25e-05", "value 1.26e-05", True),
        ("value 1.25e-05", "value 1.28e-05", False),
        ("step 100", "step 101", False),
        ("it took 3.2s", "it took 31 s", True),
        ("time: 0.25", "time: 0.5", True),
        ("<object at 0x7f00>", "<object at 0x7fff>", True),
        ("done", "", False),
        ("nan", "nan", True),
        ("1.0", "nan", False),
    ],
)
def test_what_is_printed(plain: str, other: str, same: bool) -> None:
    assert (differences(Outcome(plain, {}), Outcome(other, {})) == []) == same


ONES = np.ones(3, np.float32)


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"x": ONES}, ""),
        ({"x": ONES + 1e-6}, ""),
        ({"x": ONES + 1e-3}, "x: up to 0.001 apart, of 1"),
        ({"x": ONES.astype(np.float64)}, "x: float64[3] for float32[3]"),
        ({"x": ONES[:2]}, "x: float32[2] for float32[3]"),
        ({"x": ONES * np.nan}, "x: up to nan apart, of 1"),
        ({}, "x is missing"),
        ({"x": ONES, "y": ONES}, "y is not there with plain JAX"),
    ],
)
@pytest.mark.filterwarnings("ignore:All-NaN slice")
def test_arrays(other: dict[str, Any], says: str) -> None:
    assert "; ".join(differences(Outcome("", {"x": ONES}), Outcome("", other))) == says


def test_close_is_not_identical() -> None:
    plain, close = Outcome("1.0", {"x": ONES}), Outcome("1.0", {"x": ONES + 1e-6})
    assert is_identical(plain, plain)
    assert not is_identical(plain, close)
    assert not is_identical(plain, Outcome("1.00001", {"x": ONES}))


def test_integers_are_compared_exactly() -> None:
    plain, other = (Outcome("", {"n": np.array([10**6 + more])}) for more in (0, 1))
    assert differences(plain, other) == ["n: other values"]


def test_a_notebook_is_its_code_with_changes() -> None:
    cells = [("code", ["%pip install x\n", "n = 100\n"]), ("markdown", ["n = 3"]), ("code", ["export(n)"])]
    text = json.dumps({"cells": [{"cell_type": kind, "source": source} for kind, source in cells]})
    program = listing.Program("p", "p.ipynb", replace=(("n = 100", "n = 2"),), cut=("export(",))
    assert code_of(program, text) == "pass  # %pip install x\nn = 2\n"


def test_a_page_is_its_code_cells() -> None:
    text = "# Title\n```{code-cell} ipython3\n:tags: [x]\nn = 1\n```\n```python\nn = 2\n```\n"
    assert code_of(listing.Program("p", "p.md"), text).endswith("n = 1\n")


def test_a_script_is_as_it_is() -> None:
    text = 'print("%d"\n      % 1)\n'
    assert code_of(listing.Program("p", "p.py"), text) == text


@pytest.mark.parametrize("changes", [{"replace": (("m = 1", ""),)}, {"cut": ("m = 1",)}])
def test_a_change_that_finds_nothing_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError, match="m = 1"):
        code_of(listing.Program("p", "p.py", **changes), "n = 1")


def test_the_list_is_what_it_promises() -> None:
    programs = listing.public()
    kinds = [each.kind for each in programs]
    assert len({each.name for each in programs}) == len(programs) >= 25
    assert sum(each.lines > 200 for each in programs) >= 10
    assert kinds.count("reinforcement learning") >= 5
    assert kinds.count("nnx") + kinds.count("equinox") >= 5
    assert all(len(each.commit) == 40 for each in programs)


def test_saved_runs_become_one_table(tmp_path: Path) -> None:
    times = {"plain": 2.0, "cached": 1.5, "first": 3.0, "second": 1.0}
    runs = [
        [
            Verdict("own", right=False),
            Verdict("jraph_sat", "nets", 211, right=True, seconds=times, compiled_here=times),
        ],
        [Verdict("own", right=True, warm=True, seconds=times, compiled_here=times)],
    ]
    saved = [tmp_path / f"{number}.json" for number in range(len(runs))]
    for path, run in zip(saved, runs, strict=True):
        path.write_text(json.dumps({"programs": list(map(dataclasses.asdict, run))}))
    done = CliRunner().invoke(page.main, list(map(str, saved)))
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[2:] == [
        "| jraph_sat | nets | 211 | right, cold | 2.0 s | 1.5 s | 3.0 s | 1.0 s | 2.0 s, 1.0 s |",
        "| own |  | 0 | right, warm | 2.0 s | 1.5 s | 3.0 s | 1.0 s | 2.0 s, 1.0 s |",
    ]
