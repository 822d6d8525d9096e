"""The history of runs survives in a file, which may be damaged."""

import concurrent.futures
from pathlib import Path
from typing import Any

import pytest

from jitserver.run import history
from jitserver.run.request import Command

PROGRAM = Command("train.py", False, [])
DAMAGED = [
    b"",
    b"\0\xff",
    b"[]",
    b"[" * 100_000,
    b'{"modules": 5}',
    b'{"modules": [5]}',
    b'{"operations": ["no digits"]}',
    b'{"seed": -1}',
]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "imports.json"
    monkeypatch.setattr(history, "path", lambda: path)
    return path


@pytest.mark.parametrize("content", DAMAGED, ids=lambda content: content[:30])
def test_where_the_file_is_damaged_nothing_is_known(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    assert (history.modules(), history.operations(), history.fresh_programs()) == ([], [], frozenset())
    history.note_fresh(PROGRAM, "/")
    assert history.must_be_fresh(PROGRAM, "/")
    assert 0 < history.hash_seed() == history.hash_seed() < 2**32


def test_what_cannot_be_noted_is_an_error_that_leaves_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="no space left"), history._change() as content:
        content.modules.append("b")
    assert list(file.parent.iterdir()) == []
    assert history.hash_seed() > 0


def test_no_change_is_lost_where_several_are_made_at_once(file: Path) -> None:
    def note(number: int) -> None:
        for each in range(10):
            history.note_fresh(Command(f"{number}_{each}.py", False, []), "/")

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        list(threads.map(note, range(8)))
    assert len(history.fresh_programs()) == 80
    assert file.exists()


def test_names_of_any_characters_are_noted(file: Path) -> None:
    program = Command("/tmp/\udcff.py", False, [])
    history.note_fresh(program, "/")
    assert history.must_be_fresh(program, "/")
