"""A stage that CI has no time for runs once for a state of the files, and the table has its outcome."""

import importlib.machinery
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .sampled import is_in_part

SCRIPT = Path(__file__).parents[1] / "scripts" / "test_everything"


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script, in a repository of two files, with stages that say when they run."""
    loader = importlib.machinery.SourceFileLoader("test_everything_script", str(SCRIPT))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    made = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setitem(sys.modules, loader.name, made)
    loader.exec_module(made)
    stages = {
        "good": made.Stage("echo good >> ran; echo '== 3 passed in 1 s =='"),
        "bad": made.Stage("echo bad >> ran; echo '1 failed'; false"),
        "absent": made.Stage("echo absent >> ran", needs="JITSERVER_TEST_NOTHING"),
    }
    for name, value in (("TOP", tmp_path), ("TABLE", tmp_path / "docs" / "tested.md"), ("STAGES", stages)):
        monkeypatch.setattr(made, name, value)
    monkeypatch.setattr(made, "versions_of", lambda environment: "Python 3, jax 0")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "tested.md").touch()
    (tmp_path / ".gitignore").write_text("ran\n")
    (tmp_path / "code").write_text("1")
    commit(tmp_path)
    return made


def commit(folder: Path) -> None:
    user = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "-A"], [*user, "commit", "-qm", "all"]):
        subprocess.run(["git", *command], cwd=folder, check=True)


def ran(tool: Any, monkeypatch: pytest.MonkeyPatch, *names: str) -> tuple[int, list[str]]:
    """Run the script, and return its status and the stages that it ran."""
    monkeypatch.setattr(sys, "argv", ["test_everything", *names])
    (tool.TOP / "ran").write_text("")
    return tool.main(), (tool.TOP / "ran").read_text().split()


def test_stage_that_passed_runs_again_when_a_file_changes(tool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ran(tool, monkeypatch) == (1, ["good", "bad"])
    assert {name: row[0] for name, row in tool.rows().items()} == {"good": "3 passed in 1 s", "bad": "FAILED: 1 failed"}
    commit(tool.TOP)  # of the table
    assert ran(tool, monkeypatch) == (1, ["bad"])
    assert ran(tool, monkeypatch, "good") == (0, ["good"])
    (tool.TOP / "code").write_text("2")
    assert ran(tool, monkeypatch) == (1, ["good", "bad"])
    assert ran(tool, monkeypatch)[1] == ["good", "bad"], "no commit has these files"


def test_unknown_stage_is_refused(tool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit):
        ran(tool, monkeypatch, "nope")


def test_both_halves_have_all_tests_and_each_those_about_wrong_values() -> None:
    tests = [f"tests/jitclient/test_it.py::test_{n}[a]" for n in range(100)]
    halves = [[test for test in tests if is_in_part(test, part)] for part in ("0/2", "1/2")]
    assert sorted(halves[0] + halves[1]) == sorted(tests)
    assert min(map(len, halves)) > 30
    assert all(is_in_part(test.replace("[a]", "[b]"), "0/2") for test in halves[0])
    assert all(is_in_part("tests/planted/test_planted.py::test_it", part) for part in ("0/2", "1/2"))
