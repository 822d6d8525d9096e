"""The core notices a mistake in every room: `planted_bugs.toml` has one for each, and the test that fails with it."""

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from .test_architecture import table

TOP = Path(__file__).parents[1]
BUGS = tomllib.loads((TOP / "tests" / "planted_bugs.toml").read_text())
SOURCES = ("client", "jitserver", "systemd", "tests", "examples", "benchmarks", "docs")
FILES = ("pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md")


def test_every_room_has_a_bug() -> None:
    assert BUGS.keys() == table().keys()


@pytest.mark.parametrize("room", BUGS)
def test_the_bug_can_be_planted_and_its_test_exists(room: str) -> None:
    bug = BUGS[room]
    assert (TOP / bug["file"]).read_text().count(bug["old"]) == 1
    path, _, name = bug["test"].partition("::")
    assert f"def {name}" in (TOP / path).read_text()


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the project."""
    folder = tmp_path_factory.mktemp("copy")
    for name in SOURCES:
        shutil.copytree(TOP / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(TOP / name, folder / name)
    yield folder
    shutil.rmtree(folder)


def run_core(copy: Path, *tests: str) -> "subprocess.CompletedProcess[str]":
    """Runs those of some tests there that are in the core. Which are, is seen only where their files are whole."""
    files = {test.partition("::")[0] for test in tests}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    names = {test.partition("::")[2] or Path(test).name for test in tests}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", *sorted(files), "-k", " or ".join(sorted(names))],
        cwd=copy,
        env={**environment, "PYTHONPATH": f"{copy / 'client'}:{copy}", "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_without_the_bugs_the_tests_pass(copy: Path) -> None:
    done = run_core(copy, *{bug["test"] for bug in BUGS.values()})
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("room", BUGS)
def test_the_core_notices_the_bug(room: str, copy: Path) -> None:
    bug = BUGS[room]
    path = copy / bug["file"]
    text = path.read_text()
    path.write_text(text.replace(bug["old"], bug["new"]))
    try:
        done = run_core(copy, bug["test"])
    finally:
        path.write_text(text)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
