"""The caches of all environments of a user share one limit on the disk."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jitserver.store.catalog import CATALOG
from jitserver.store.disk import Store
from jitserver.store.environments import SharedLimit, disk_bytes
from jitserver.store.journal import Journal, is_in_use

MIB = 1 << 20
DAY = 24 * 3600.0


class Caches:
    """The cache directories of a user's environments, each named by a digit, under one root."""

    def __init__(self, root: Path, stored: Callable[..., Any]) -> None:
        self.root = root
        self._stored = stored

    def directory(self, digit: str, environment: Path | None = None) -> Path:
        path = self.root / (digit * 12)
        path.mkdir(exist_ok=True)
        if environment is not None:
            (path / "environment").write_bytes(os.fsencode(environment))
        return path

    def fill(self, digit: str, ages: dict[str, float], **more: Any) -> None:
        """Store programs of a mebibyte with these days since their last use."""
        store = Store(self.directory(digit), 1 << 40)
        for key, days in ages.items():
            store.put(self._stored(key, age=days * DAY, **more), os.urandom(MIB))
        store.close()

    def keys(self, digit: str) -> set[str]:
        store = Store(self.directory(digit), 1 << 40)
        found = {info.key for info in store.infos()}
        assert all(store.blob(stored.executable) for key in found if (stored := store.get(key)))
        store.close()
        return found

    def nbytes(self) -> int:
        return sum(disk_bytes(path) for path in self.root.iterdir())


@pytest.fixture
def caches(tmp_path: Path, stored: Callable[..., Any]) -> Caches:
    root = tmp_path / "caches"
    root.mkdir()
    return Caches(root, stored)


@pytest.fixture
def store(caches: Caches) -> Iterator[Callable[[int], Store]]:
    """The disk tier of environment 0, with a limit in mebibytes for all, beside a live daemon of environment 9."""
    made: list[Store] = []

    def begin(mebibytes: int) -> Store:
        own = caches.directory("0")
        made.append(Store(own, mebibytes * MIB))
        made[-1].shared = SharedLimit(own, mebibytes * MIB, lambda path: path.name == "9" * 12)
        return made[-1]

    yield begin
    for each in made:
        each.close()


def test_within_the_limit_nothing_leaves(caches: Caches, store: Any) -> None:
    caches.fill("1", {"a": 3})
    assert store(8).collect() == 0
    assert caches.keys("1") == {"a"}


def test_the_least_recently_used_programs_of_any_environment_leave_first(caches: Caches, store: Any) -> None:
    caches.fill("0", {"own old": 5, "own new": 0})
    caches.fill("1", {"old": 6, "middle": 4, "new": 1})
    caches.fill("2", {"older": 7, "newer": 2})
    subject = store(6)
    assert subject.collect() > MIB
    assert caches.nbytes() <= 6 * MIB
    assert caches.keys("2") == {"newer"}
    assert {"middle", "new"} == caches.keys("1")
    assert "own new" in caches.keys("0")
    assert subject.shared is not None
    assert subject.shared.other_bytes == sum(disk_bytes(caches.directory(digit)) for digit in "12")


def test_environments_that_are_gone_leave_before_all_others(caches: Caches, store: Any, tmp_path: Path) -> None:
    (tmp_path / "here" / "bin").mkdir(parents=True)
    caches.directory("1", tmp_path / "gone")
    caches.directory("2", tmp_path / "here")
    caches.fill("1", {"new": 0, "newer": 0})
    caches.fill("2", {"old": 9, "older": 10})
    store(4).collect()
    assert not (caches.root / ("1" * 12)).exists()
    assert caches.keys("2") == {"old", "older"}


def test_pinned_programs_and_those_of_live_daemons_stay(caches: Caches, store: Any, tmp_path: Path) -> None:
    caches.directory("9", tmp_path / "gone")
    caches.fill("9", {"live": 9, "live too": 9})
    caches.fill("1", {"pinned": 9}, pinned=True)
    caches.fill("1", {"idle": 1})
    store(3).collect()
    assert caches.keys("9") == {"live", "live too"}
    assert caches.keys("1") == {"pinned"}


def test_a_quarter_is_left_to_this_environment_however_much_others_use(caches: Caches, store: Any) -> None:
    caches.fill("9", {f"live {number}": 0 for number in range(8)})
    caches.fill("0", {"a": 3, "b": 2, "c": 1})
    subject = store(8)
    subject.collect()
    assert caches.keys("0") == {"c"}
    for key in "de":
        subject.put(caches._stored(key), os.urandom(MIB))
    assert caches.keys("0")


def test_a_new_program_makes_idle_environments_give_way(caches: Caches, store: Any) -> None:
    caches.fill("1", {f"idle {number}": 9 - number for number in range(6)})
    subject = store(8)
    subject.collect()
    for number in range(5):
        subject.put(caches._stored(f"own {number}"), os.urandom(MIB))
    assert {f"own {number}" for number in range(5)} <= caches.keys("0")
    subject.collect()
    assert caches.nbytes() <= 8 * MIB
    assert {f"own {number}" for number in range(5)} == caches.keys("0")


def test_the_catalogs_log_is_no_reason_to_evict(caches: Caches, store: Any) -> None:
    subject = store(2)
    for number in range(8):
        subject.put(caches._stored(f"{number}"), os.urandom(100))
    for _ in range(2000):
        subject.pin(map(str, range(8)), pinned=True)
        subject.pin(map(str, range(8)), pinned=False)
        log = caches.directory("0") / f"{CATALOG}-wal"
        if log.stat().st_size > 2 * MIB:
            break
    assert disk_bytes(log) > 2 * MIB
    subject.collect()
    assert caches.keys("0") == set(map(str, range(8)))


@pytest.mark.parametrize("catalog", ["missing", "damaged"])
def test_without_a_catalog_that_can_be_read_the_oldest_files_leave(caches: Caches, store: Any, catalog: str) -> None:
    caches.fill("1", {"a": 1, "b": 1})
    (caches.directory("1") / "compilations").mkdir()
    compilation = caches.directory("1") / "compilations" / "x"
    compilation.write_bytes(os.urandom(MIB))
    path = caches.directory("1") / CATALOG
    for beside in path.parent.glob(f"{CATALOG}*"):
        beside.unlink()
    if catalog == "damaged":
        path.write_bytes(b"x" * 8192)
    blobs = sorted((caches.directory("1") / "blobs").glob("*/*"))
    for number, file in enumerate([compilation, *blobs]):
        os.utime(file, (1e9 + number, 1e9 + number))
    store(2).collect()
    assert [file.exists() for file in (compilation, *blobs)] == [False, False, True]
    assert path.exists() == (catalog == "damaged")


def test_a_directory_is_in_use_as_long_as_its_daemon_lives(tmp_path: Path) -> None:
    assert not is_in_use(tmp_path, tmp_path / "a")
    journal = Journal.create(tmp_path, tmp_path / "a")
    assert is_in_use(tmp_path, tmp_path / "a")
    assert not is_in_use(tmp_path, tmp_path / "b")
    journal.end()
    assert not is_in_use(tmp_path, tmp_path / "a")


def test_sizes_are_those_of_du(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for name, nbytes in (("small", 1), ("folder/large", 100_000), ("folder/empty", 0)):
        (tmp_path / name).write_bytes(b"x" * nbytes)
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    du = subprocess.run(["du", "-s", "-B1", str(tmp_path)], capture_output=True, text=True, check=True).stdout
    assert disk_bytes(tmp_path) == int(du.split()[0])
    assert disk_bytes(tmp_path / "link") < 100_000
