"""The record of a run: the user's files that it executed, and its report, for the command that started it."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from jitserver.run import front, record
from jitserver.run.request import Command

BEGIN = """
import os, sys
from jitserver.run import record
record.begin(sys.argv[1], [], None, "a reason")
sys.path.insert(0, os.getcwd())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "used.py").write_text("import part\n")
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "__init__.py").write_text("VALUE = 1\n")
    (tmp_path / "unused.py").write_text("")
    (tmp_path / "record").mkdir()
    record.create(tmp_path / "record")
    return tmp_path


def run(folder: Path, source: str) -> int:
    words = [sys.executable, "-c", BEGIN + textwrap.dedent(source), str(folder / "record")]
    return subprocess.run(words, cwd=folder, check=False, stderr=subprocess.DEVNULL).returncode


def names(folder: Path) -> list[str]:
    return [os.path.relpath(path, os.path.realpath(folder)) for path, _ in record.files(folder / "record")]


def test_it_has_the_users_files_and_the_report(folder: Path) -> None:
    assert run(folder, "import used, json, msgspec") == 0
    assert names(folder) == ["used.py", "part/__init__.py"]
    assert record.files(folder / "record")[0].mtime_ns == (folder / "used.py").stat().st_mtime_ns
    assert json.loads(record.report(folder / "record"))["imports"]["why"] == "a reason"


@pytest.mark.parametrize("end", ["os._exit(3)", "os.kill(os.getpid(), 9)", "1 / 0"])
def test_no_end_of_the_process_loses_files(folder: Path, end: str) -> None:
    assert run(folder, f"import used; {end}") in (1, 3, -signal.SIGKILL)
    assert names(folder) == ["used.py", "part/__init__.py"]


def test_a_forked_child_changes_nothing(folder: Path) -> None:
    source = """
        if os.fork() == 0:
            import used
            sys.exit()
        os.wait()
        import unused
    """
    assert run(folder, source) == 0
    assert names(folder) == ["unused.py"]


def test_a_run_that_starts_again_begins_again(folder: Path) -> None:
    run(folder, "import used")
    run(folder, "import unused")
    assert names(folder) == ["unused.py"]


def test_a_program_runs_although_its_record_is_gone(folder: Path) -> None:
    (folder / "record" / "files").unlink()
    (folder / "record").rmdir()
    assert run(folder, "import used") == 0


def test_the_option_of_a_run() -> None:
    assert front.parsed(["--record=/a/b", "--fresh", "x.py"]) == Command(
        "x.py", False, [], fresh="--fresh was given", record="/a/b"
    )
