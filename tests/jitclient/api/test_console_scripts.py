"""Console scripts are found by name, as a shell finds them."""

import sys
from pathlib import Path

import pytest

from jitclient.api.console_scripts import resolved

LONG = "#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\n"
"""The beginning of a script whose interpreter's path is too long for one line, as pip writes it."""

SCRIPTS = {
    "of this environment": ("#!{python}\n", True),
    "with options": ("#!{python} -P\n", True),
    "with a long path": (LONG, True),
    "of another environment": ("#!/usr/other/bin/python3\n", False),
    "of the shell, which starts this Python": ('#!/bin/sh\nexec {python} -m pytest "$@"\n', False),
    "of the shell": ("#!/bin/sh\n", False),
    "empty": ("", False),
}


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A working folder, and a folder on PATH."""
    here, scripts = tmp_path / "here", tmp_path / "bin"
    here.mkdir()
    scripts.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("PATH", f"/no/such/folder:{scripts}")
    return here, scripts


def write(path: Path, text: str, mode: int = 0o755) -> None:
    path.write_text(text.replace("{python}", sys.executable))
    path.chmod(mode)


@pytest.mark.parametrize("kind", SCRIPTS)
def test_only_scripts_that_this_environments_python_runs_count(kind: str, folders: tuple[Path, Path]) -> None:
    text, is_found = SCRIPTS[kind]
    write(folders[1] / "mosaic", text)
    assert resolved("mosaic") == (str(folders[1] / "mosaic") if is_found else "mosaic")


def test_this_environments_scripts_need_no_path(
    folders: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = tmp_path / "environment"
    environment.mkdir()
    write(environment / "mosaic", "#!{python}\n")
    write(folders[1] / "mosaic", "#!{python}\n")
    monkeypatch.setattr(sys, "executable", str(environment / "python"))
    assert resolved("mosaic") == str(environment / "mosaic")


def test_files_come_first_and_folders_without_a_program_do_not(folders: tuple[Path, Path]) -> None:
    here, scripts = folders
    write(scripts / "mosaic", "#!{python}\n")
    (here / "mosaic").mkdir()
    assert resolved("mosaic") == str(scripts / "mosaic")
    (here / "mosaic" / "__main__.py").touch()
    assert resolved("mosaic") == "mosaic"
    write(scripts / "train.py", "#!{python}\n")
    (here / "train.py").touch()
    assert resolved("train.py") == "train.py"
    assert resolved("./pip") == "./pip"


def test_what_cannot_be_executed_is_none(folders: tuple[Path, Path]) -> None:
    write(folders[1] / "mosaic", "#!{python}\n", 0o644)
    assert resolved("mosaic") == "mosaic"
    assert resolved("") == ""
