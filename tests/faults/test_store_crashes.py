"""A process that dies in the middle of saving leaves a cache that opens, and holds right answers only."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from jitserver.store.disk import Store

WORKER = Path(__file__).with_name("store_worker.py")

POINTS = {
    "in the middle of write": 3,  # three blobs
    "before sync": 3,
    "after sync": 3,
    "before rename": 3,
    "after rename": 3,
    "before commit": 5,  # the tables, three programs, one removal
    "after commit": 5,
}
"""Where it dies, and how often one run comes by there."""


def run(folder: Path, point: str, number: int) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, WORKER, folder, point, str(number)], capture_output=True, text=True)


def assert_right(store: Store) -> None:
    """Every program that is found is whole."""
    for info in store.infos():
        found = store.get(info.key)
        assert found is not None
        assert found.facts == info.key.encode() * 100
        executable, capture = store.blob(found.executable), store.blob(found.capture)
        assert executable == f"executable of {info.key}".encode() * 1000
        assert capture == b"capture of both" * 1000


def test_every_point_is_counted(tmp_path: Path) -> None:
    done = run(tmp_path, "nowhere", 1)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == POINTS


@pytest.mark.parametrize(
    ("point", "number"),
    [
        pytest.param(point, number, marks=pytest.mark.slow if number > 1 else ())
        for point, times in POINTS.items()
        for number in range(1, times + 1)
    ],
)
def test_after_a_crash_there_the_cache_opens_and_goes_on(tmp_path: Path, point: str, number: int) -> None:
    died = run(tmp_path, point, number)
    assert died.returncode == 9, died.stderr  # it was there
    store = Store(tmp_path, 1 << 30)
    assert_right(store)
    assert list((tmp_path / "quarantine").iterdir()) == []  # nothing broken was left
    store.close()
    again = run(tmp_path, "nowhere", 1)
    assert again.returncode == 0, again.stderr
    store = Store(tmp_path, 1 << 30)
    assert [info.key for info in store.infos()] == ["first"]
    assert_right(store)
    store.close()
