"""Which programs a helper does not take, as their source says."""

import textwrap
from pathlib import Path

import pytest

from jitserver.run import history, scan
from jitserver.run.request import Command

LOADED = {"numpy", "jax", "json"}

CHANGES = [
    "os.environ['JAX_ENABLE_X64'] = '1'",
    "os.environ.update(A='1')",
    "os.environ.setdefault('A', '1')",
    "del os.environ['A']",
    "os.environ |= {'A': '1'}",
    "os.putenv('A', '1')",
    "from os import environ\nenviron['A'] = '1'",
    "from os import environ as variables\nvariables['A'] = '1'",
    "variables = os.environ\nvariables['A'] = '1'",
    "change(os.environ)",
    "setattr(os, 'environ', {})",
    "dotenv.load_dotenv()",
    "def main():\n    os.environ['A'] = '1'",
]
READS = [
    "print(os.environ['HOME'], os.environ.get('A'), 'A' in os.environ, os.getenv('A'))",
    "subprocess.run(['ls'], env={**os.environ, 'A': '1'})",
    "variables = dict(os.environ)\nvariables['A'] = '1'",
    "variables = os.environ.copy()",
    "for name in os.environ: print(name)",
    "x = 'os.environ'  # os.environ['A'] = 1",
    "def",  # the run says so
]


def refusal(folder: Path, source: str, name: str = "script.py") -> str:
    (folder / name).write_text(textwrap.dedent(source))
    return scan.refusal(Command(name, False, []), str(folder), LOADED)


@pytest.mark.parametrize("source", CHANGES)
def test_what_may_set_variables_is_refused(source: str, tmp_path: Path) -> None:
    assert "script.py:" in refusal(tmp_path, f"import numpy\n{source}")


@pytest.mark.parametrize("source", READS)
def test_what_only_reads_is_not(source: str, tmp_path: Path) -> None:
    assert refusal(tmp_path, f"import os, sys, warnings, json\n{source}") == ""


@pytest.mark.parametrize("name", ["pytest", "coverage.__main__", "IPython", "ipykernel_launcher"])
def test_what_runs_programs_that_it_does_not_name_is_refused(name: str, tmp_path: Path) -> None:
    assert scan.refusal(Command(name, True, []), str(tmp_path), LOADED) == f"{name} runs code from elsewhere"
    script = f"/usr/bin/{name.partition('.')[0]}"
    assert scan.refusal(Command(script, False, []), str(tmp_path), LOADED) == f"{script} runs code from elsewhere"


def test_a_package_whose_jits_are_ours_must_not_be_there_yet(tmp_path: Path) -> None:
    (tmp_path / "script.py").touch()
    for name, says in {"numpy": "has already imported", "numpyro": ""}.items():
        found = scan.refusal(Command("script.py", False, [], packages=(name,)), str(tmp_path), LOADED)
        assert (says in found) if says else found == ""


def test_what_changed_something_too_late_is_refused_from_then_on(tmp_path: Path) -> None:
    assert refusal(tmp_path, "") == ""
    history.note_fresh(Command("script.py", False, ["x"]), str(tmp_path))
    history.note_fresh(Command("tool", True, []), str(tmp_path))
    assert "after it had written something" in refusal(tmp_path, "")
    assert "after it had written something" in scan.refusal(Command("tool", True, []), str(tmp_path), LOADED)
    assert refusal(tmp_path, "", "other.py") == ""
