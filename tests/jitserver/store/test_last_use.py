"""Notes of the last use of each script, and their bound."""

import os
from pathlib import Path

import pytest

from jitclient.core.directories import compilations_directory
from jitserver.store import last_use


def test_the_last_use_replaces_the_one_before(tmp_path: Path) -> None:
    folder = compilations_directory(tmp_path)
    folder.mkdir()
    for name, time in ("old", 100), ("used", 200), ("made", 300):
        (folder / name).touch()
        os.utime(folder / name, (time, time))
    last_use.note(tmp_path, "train.py", ["b", "a"], 150)
    found = last_use.of_script(tmp_path, "train.py")
    assert found == last_use.LastUse("train.py", ("a", "b"), ("made", "used"))
    last_use.note(tmp_path, "train.py", ["c"], 1000)
    assert last_use.of_script(tmp_path, "train.py") == last_use.LastUse("train.py", ("c",), ())
    assert last_use.of_script(tmp_path, "other.py") is None


def test_a_damaged_note_is_none(tmp_path: Path) -> None:
    last_use.note(tmp_path, "train.py", [], 0)
    (file,) = (tmp_path / "last-use").iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    assert last_use.of_script(tmp_path, "train.py") is None


def test_old_notes_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_use, "_MAX_BYTES", 200)
    for number in range(50):
        last_use.note(tmp_path, f"{number}.py", ["key"], 0)
    assert 0 < len(list((tmp_path / "last-use").iterdir())) < 10
    assert last_use.of_script(tmp_path, "49.py") is not None
