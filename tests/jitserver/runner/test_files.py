"""Which files were saved since a run began, however an editor saves."""

from pathlib import Path

import pytest

from jitserver.run.record import UsedFile
from jitserver.runner.files import Saved, WatchedFiles

BEFORE, AFTER = "def f():\n    return 1\n", "def f():\n    return 2\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "model.py"
    file.write_text(BEFORE)
    return file


@pytest.fixture
def files(path: Path) -> WatchedFiles:
    return WatchedFiles([str(path)])


def saved(files: WatchedFiles, is_settled: bool = True, with_equal: bool = False) -> list[str]:
    return list(map(str, files.saved(is_settled, with_equal)))


def by_rename(path: Path, text: str) -> None:
    newer = path.with_suffix(".new")
    newer.write_text(text)
    newer.replace(path)


def test_a_save_is_found_once(files: WatchedFiles, path: Path) -> None:
    assert saved(files) == []
    path.write_text(AFTER)
    assert saved(files) == ["f in model.py"]
    assert saved(files) == []


def test_a_save_by_rename(files: WatchedFiles, path: Path) -> None:
    by_rename(path, AFTER)
    assert saved(files) == ["f in model.py"]


def test_a_file_that_appears_again(files: WatchedFiles, path: Path) -> None:
    path.unlink()
    assert saved(files) == []
    path.write_text(AFTER)
    assert saved(files) == ["f in model.py"]


def test_a_save_without_a_change(files: WatchedFiles, path: Path) -> None:
    by_rename(path, BEFORE)
    assert saved(files) == []
    by_rename(path, BEFORE)
    assert saved(files, with_equal=True) == ["only comments, docstrings or layout in model.py"]


def test_a_write_that_may_be_incomplete_counts_once_it_stays(files: WatchedFiles, path: Path) -> None:
    path.write_text("")
    assert saved(files, is_settled=False) == []
    path.write_text(AFTER)
    assert saved(files, is_settled=False) == []
    assert saved(files, is_settled=False) == ["f in model.py"]


def test_a_mended_file_is_compared_with_the_last_valid_one(files: WatchedFiles, path: Path) -> None:
    path.write_text("def f(:")
    assert saved(files) == ["model.py, which is not valid Python"]
    path.write_text(AFTER)
    (found,) = files.saved(True, False)
    assert (str(found), found.may_change_all) == ("f in model.py", False)


def test_a_file_that_was_saved_after_its_import(path: Path, tmp_path: Path) -> None:
    files = WatchedFiles([])
    imported = path.stat().st_mtime_ns
    files.add([UsedFile(str(path), imported)])
    assert files.directories() == [str(tmp_path)]
    assert saved(files) == []
    other = tmp_path / "other.py"
    other.write_text(AFTER)
    files.add([UsedFile(str(other), other.stat().st_mtime_ns - 1)])
    (found,) = files.saved(True, False)
    assert (str(found), found.changes, found.may_change_all) == ("other.py", None, True)


def test_files_that_are_no_longer_used(files: WatchedFiles, path: Path) -> None:
    files.keep([])
    path.write_text(AFTER)
    assert saved(files) == []
    assert len(files) == 0


def test_many_changes_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text("")
    files = WatchedFiles([str(path)])
    path.write_text("RATE = 1\n" + "".join(f"def f{number}(): pass\n" for number in range(9)))
    assert saved(files) == ["f0, f1, f2, f3, f4, f5, 3 more and module-level code in model.py"]


def test_the_names_of_a_changed_package() -> None:
    from jitserver.runner.changes import Changes

    found = Saved("/a/layers/__init__.py", Changes(("Model.forward",), False))
    assert found.names == [frozenset({"Model", "forward"}), frozenset({"module layers"})]
