"""The disk as commands see it while no daemon runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jitclient.core import directories
from jitserver.store import offline
from jitserver.store.catalog import CATALOG
from jitserver.store.disk import Store


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    found = [tmp_path / "own", tmp_path / "system"]
    for path in found:
        path.mkdir()
    monkeypatch.setattr(directories, "existing_directories", lambda: found)
    return found


def test_programs_of_all_parts_and_each_once(parts: list[Path], stored: Callable[..., Any]) -> None:
    assert offline.infos() == []
    for part, keys in zip(parts, (("a", "both"), ("b", "both")), strict=True):
        store = Store(part, 1 << 30)
        for key in keys:
            store.put(stored(key, f"fun_{key}"), b"executable", b"")
        store.close()
    assert sorted(info.key for info in offline.infos()) == ["a", "b", "both"]
    assert [info.key for info in offline.infos("fun_b")] == ["b"]
    found = offline.stored("b")
    assert found is not None
    assert found.info.name == "fun_b"
    assert offline.stored("c") is None


def test_a_broken_catalog_hides_no_other_and_stays_where_it_is(parts: list[Path], stored: Callable[..., Any]) -> None:
    (parts[0] / CATALOG).write_text("broken" * 1000)
    store = Store(parts[1], 1 << 30)
    store.put(stored("a"), b"", b"")
    store.close()
    assert [info.key for info in offline.infos()] == ["a"]
    assert (parts[0] / CATALOG).read_text() == "broken" * 1000


def test_what_a_daemon_writes_meanwhile_is_seen(parts: list[Path], stored: Callable[..., Any]) -> None:
    store = Store(parts[0], 1 << 30)
    store.put(stored("a"), b"", b"")
    assert [info.key for info in offline.infos()] == ["a"]
    store.put(stored("b"), b"", b"")
    assert [info.key for info in offline.infos()] == ["a", "b"]
    store.close()
