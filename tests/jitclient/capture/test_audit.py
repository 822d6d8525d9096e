"""Reads from outside while something runs."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from jitclient.calls.deps import Deps
from jitclient.capture.ambient import audit
from jitclient.capture.ambient.inputs import recorded_reads

LATE = """
import sys
from jitclient.capture.ambient import audit

audit.install_hook()

class Late:
    def __del__(self, open=open):
        with open(sys.argv[1], "a") as file:
            file.write("opened ")

audit.late = Late()
sys.late = Late()
"""


def test_files_can_be_opened_until_a_process_is_over(tmp_path: Path) -> None:
    script = LATE.replace("open(sys.argv[1]", f"open({str(tmp_path / 'out')!r}")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert (tmp_path / "out").read_text() == "opened opened "


def test_reads_are_noted_for_who_wants_to_know_only(tmp_path: Path) -> None:
    audit.install_hook()
    path = tmp_path / "data"
    path.write_text("x")
    with recorded_reads() as reads:
        path.read_text()
        path.write_text("y")
        os.listdir(tmp_path)
    path.read_text()
    assert [read.partition(" is read")[0] for read in reads] == [f"file {str(path)!r}", f"directory {str(tmp_path)!r}"]


def test_inputs_declared_for_an_inner_function_are_noted(tmp_path: Path) -> None:
    audit.install_hook()
    path = tmp_path / "data"
    path.write_text("x")
    with recorded_reads() as reads:
        declared = Deps.of([path])
        assert declared is not None
        declared.now()
    assert [read.partition(" is read")[0] for read in reads] == [f"file {str(path)!r}"]


def test_what_is_read_from_outside(tmp_path: Path) -> None:
    source = tmp_path / "own.py"
    source.write_text("x = 1")
    for event, arguments, what in [
        ("os.listdir", (str(tmp_path),), "directory"),
        ("os.scandir", (None,), "directory"),
        ("os.listdir", (np_folder(),), "directory"),
        ("os.listdir", (os.path.dirname(os.__file__) + "/email",), ""),
        ("open", (f"{np_folder()}/made_later.json", "r", 0), "file"),
        ("open", (f"{np_folder()}/__init__.py", "r", 0), ""),
        ("open", (f"{np_folder()}-1.0.dist-info/METADATA", "r", 0), ""),
        ("open", (f"{os.path.dirname(os.__file__)}/lib2to3/Grammar.txt", "r", 0), ""),
        ("open", (str(source), "r", 0), "file"),
        ("open", (str(source), "w", os.O_WRONLY), ""),
        ("open", (next(path for path in sys.path if path.endswith(".zip")), "r", 0), ""),
        ("open", (str(tmp_path / "data.zip"), "r", 0), "file"),
        ("subprocess.Popen", ("true", [], None, None), "subprocess"),
        ("socket.connect", (None, ("127.0.0.1", 1)), "socket"),
        ("sqlite3.connect", ("a.db",), "sqlite3"),
    ]:
        found: Any = audit.input_of(event, arguments)
        assert found.startswith(what), event
        assert bool(found) == bool(what), event


def np_folder() -> str:
    import numpy as np

    return os.path.dirname(np.__file__)
