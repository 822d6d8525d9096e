"""Rows for programs on the disk."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jitserver.store.catalog import Catalog, Use
from jitserver.store.checked_files import Corrupt


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "catalog.sqlite"


def test_what_was_added_is_found_by_others_too(path: Path, stored: Callable[..., Any]) -> None:
    mine, other = Catalog(path), Catalog(path)
    row = stored("ab", pinned=True, hits=2, saved=3.0)
    mine.add(row, {"d": 10})
    assert other.find("ab") == row
    assert other.find("a") is None
    assert other.blobs() == {"d": 10}
    reader = Catalog(path, writes=False)
    assert reader.infos() == [row.info]
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.pin(["ab"], False)
    for each in (mine, other, reader):
        each.close()


def test_infos_by_the_beginning_of_the_key_or_the_whole_name(path: Path, stored: Callable[..., Any]) -> None:
    catalog = Catalog(path)
    for key, name in (("ab", "f"), ("ac", "g"), ("bd", "abc"), ("%", "%")):
        catalog.add(stored(key, name), {})
    assert [info.key for info in catalog.infos("a")] == ["ab", "ac"]
    assert [info.key for info in catalog.infos("abc")] == ["bd"]
    assert [info.key for info in catalog.infos("%")] == ["%"]
    assert sorted(info.key for info in catalog.infos()) == ["%", "ab", "ac", "bd"]
    catalog.close()


def test_uses_add_up_and_the_last_one_counts(path: Path, stored: Callable[..., Any]) -> None:
    catalog = Catalog(path)
    catalog.add(stored("a", hits=1, saved=1.0, last_used=5.0), {})
    catalog.use([Use("a", 2, 2.0, 7.0), Use("a", 1, 1.0, 6.0), Use("unknown", 1, 1.0, 1.0)])
    [info] = catalog.infos()
    assert (info.hits, info.saved, info.last_used) == (4, 4.0, 7.0)
    catalog.pin(["a"], True)
    assert catalog.infos()[0].pinned
    catalog.close()


def test_what_is_noted_leaves_the_columns_alone(path: Path, stored: Callable[..., Any]) -> None:
    catalog = Catalog(path)
    row = stored("a", hits=1, slowest=0.5)
    catalog.add(row, {})
    catalog.use([Use("a", 2, 0.0, 7.0)])
    row.info.slowest = 0.25
    catalog.note([row.info, stored("unknown").info])
    [info] = catalog.infos()
    assert (info.slowest, info.hits) == (0.25, 3)
    catalog.close()


def test_a_blob_goes_with_the_last_program_that_needs_it(path: Path, stored: Callable[..., Any]) -> None:
    import dataclasses

    catalog = Catalog(path)
    for key in "ab":
        row = dataclasses.replace(stored(key), executable=f"exe {key}", capture="shared")
        catalog.add(row, {f"exe {key}": 5000, "shared": 10})
    before = catalog.total()
    assert catalog.remove(["a"]) == ["exe a"]
    assert catalog.total() == before - 2 * 4096, "files take whole blocks"
    assert sorted(catalog.remove(["b", "unknown"])) == ["exe b", "shared"]
    assert catalog.blobs() == {}
    assert catalog.find("b") is None
    catalog.close()


def test_nothing_is_left_of_what_was_removed(path: Path, stored: Callable[..., Any]) -> None:
    import dataclasses

    catalog = Catalog(path)
    for key in "ab":
        catalog.add(dataclasses.replace(stored(key), capture="secret_of_mine"), {"secret_of_mine": 10})
    catalog.remove(["a", "b"])
    assert [file.name for file in path.parent.iterdir() if b"secret_of_mine" in file.read_bytes()] == []
    catalog.close()


def test_another_format_and_what_is_no_catalog_are_damaged(path: Path, tmp_path: Path) -> None:
    Catalog(path).close()
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA user_version = 99")
    other.close()
    with pytest.raises(Corrupt, match="format is 99"):
        Catalog(path)
    (tmp_path / "text").write_text("no database at all" * 100)
    with pytest.raises(Corrupt):
        Catalog(tmp_path / "text")


def test_one_that_only_reads_makes_none(path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError):
        Catalog(path, writes=False)
    assert not path.exists()


def test_a_relative_path_is_one_of_this_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Catalog(Path("catalog.sqlite")).close()
    assert (tmp_path / "catalog.sqlite").is_file()


def test_a_change_that_fails_half_way_leaves_the_row_as_it_was(
    path: Path, stored: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = Catalog(path)
    catalog.add(stored("a", "old"), {})

    def fail(connection: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("jitserver.store.catalog.commit", fail)
    with pytest.raises(sqlite3.OperationalError):
        catalog.add(stored("a", "new"), {})
    monkeypatch.undo()
    assert [info.name for info in catalog.infos()] == ["old"]
    catalog.add(stored("a", "new"), {})
    assert [info.name for info in catalog.infos()] == ["new"]
    catalog.close()


def test_one_that_is_dropped_closes_its_file(path: Path) -> None:
    catalog = Catalog(path)
    connection = catalog._connection
    del catalog
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")
