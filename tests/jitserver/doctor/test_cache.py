"""The cache on the disk: whose it is, whether it can be read, and what of it was damaged."""

from pathlib import Path

import pytest

from jitclient.wire.address import Address
from jitserver.cache.catalog import CATALOG, Catalog
from jitserver.cache.store import QUARANTINE
from jitserver.doctor import cache as cache_module
from jitserver.doctor.cache import cache
from jitserver.doctor.finding import DaemonState

HERE = DaemonState(Address(Path("/nowhere/d.sock")))


@pytest.fixture
def part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cache_module, "parts_there", lambda: [tmp_path])
    tmp_path.chmod(0o700)
    return tmp_path


def levels() -> dict[str, str]:
    return {found.check: found.level for found in cache(HERE)}


def test_a_cache_to_come_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "parts_there", list)
    assert levels() == {"cache": "ok"}


def test_a_cache_that_can_be_read_is_well(part: Path) -> None:
    assert levels() == {"cache": "ok", "catalog": "ok"}
    Catalog(part / CATALOG).close()
    assert levels() == {"cache": "ok", "catalog": "ok"}


def test_others_may_not_write_what_is_loaded(part: Path) -> None:
    part.chmod(0o770)
    assert levels()["cache"] == "problem"


def test_a_catalog_that_is_none_and_what_was_set_aside_are_told(part: Path) -> None:
    (part / CATALOG).write_bytes(b"no catalog at all" * 100)
    (part / QUARANTINE).mkdir()
    (part / QUARANTINE / "damaged").write_text("x")
    assert levels() == {"cache": "ok", "catalog": "warning", "set aside": "warning"}
    [found] = [found for found in cache(HERE) if found.check == "set aside"]
    assert found.says.startswith("1 files")
