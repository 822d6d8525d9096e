"""Reads of the world while something is traced."""

import linecache
import os
from pathlib import Path
from typing import Any

import pytest

from jitclient.capture import world
from jitclient.capture.ambient import note_read
from jitclient.errors import AmbientInput
from jitserver.engine import ambient


def test_a_failure_after_a_read_is_a_read() -> None:
    def reads() -> None:
        with ambient.refused():
            note_read("the file")
            raise FileNotFoundError("it lies elsewhere")

    with pytest.raises(AmbientInput, match="the file") as caught:
        reads()
    assert isinstance(caught.value.__cause__, FileNotFoundError)


def test_a_failure_without_a_read_stays_as_it_is() -> None:
    with pytest.raises(FileNotFoundError), ambient.refused():
        raise FileNotFoundError("it lies elsewhere")


def test_what_is_read_from_outside(tmp_path: Path) -> None:
    source = tmp_path / "own.py"
    source.write_text("x = 1")
    for event, arguments, what in [
        ("os.listdir", (str(tmp_path),), "folder"),
        ("os.scandir", (None,), "folder"),
        ("os.listdir", (np_folder(),), ""),
        ("open", (str(source), "r", 0), "file"),
        ("open", (str(source), "w", os.O_WRONLY), ""),
        ("subprocess.Popen", ("true", [], None, None), "subprocess"),
        ("socket.connect", (None, ("127.0.0.1", 1)), "socket"),
        ("sqlite3.connect", ("a.db",), "sqlite3"),
    ]:
        found: Any = world.input_of(event, arguments)
        assert found.startswith(what), event
        assert bool(found) == bool(what), event


def test_quoting_a_source_reads_nothing(tmp_path: Path) -> None:
    world.watch()
    source = tmp_path / "own.py"
    source.write_text("x = 1")
    with ambient.refused():
        assert linecache.getline(str(source), 1) == "x = 1\n"
    with pytest.raises(AmbientInput, match=r"own\.py"), ambient.refused():
        source.read_text()


def np_folder() -> str:
    import numpy as np

    return os.path.dirname(np.__file__)
