"""The contract of every tier of the cache."""

import dataclasses
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jitserver.store.disk import Store
from jitserver.store.entry import OVERHEAD_BYTES, Entry, Stored
from jitserver.store.memory import MemoryTier

MIB = 1 << 20
ROOM = 8 * MIB
THREADS, ROUNDS = 4, 10


@dataclasses.dataclass
class Subject:
    """A tier, and how programs of some size get there."""

    tier: MemoryTier | Store
    put: Callable[..., Entry | Stored]

    def held(self) -> list[str]:
        return sorted(info.key for info in self.tier.infos())


@pytest.fixture(params=["memory", "disk"])
def make(
    request: pytest.FixtureRequest, tmp_path: Path, entry: Callable[..., Any], stored: Callable[..., Any]
) -> Iterator[Callable[[int], Subject]]:
    """Makes a tier that may take so many bytes."""
    stores: list[Store] = []

    def in_memory(max_bytes: int) -> Subject:
        memory = MemoryTier(max_bytes, 1 << 40)

        def put(key: str, size: int = MIB, **more: Any) -> Entry | Stored:
            return memory.put(entry(key, code_bytes=max(0, size - OVERHEAD_BYTES), **more))

        return Subject(memory, put)

    def on_disk(max_bytes: int) -> Subject:
        store = Store(tmp_path, max_bytes * 4 // 3)  # a quarter of which is not for programs
        stores.append(store)

        def put(key: str, size: int = MIB, **more: Any) -> Entry | Stored:
            return store.put(stored(key, **more), os.urandom(size))

        return Subject(store, put)

    yield in_memory if request.param == "memory" else on_disk
    for store in stores:
        store.close()


@pytest.fixture
def subject(make: Callable[[int], Subject]) -> Subject:
    return make(ROOM)


def test_what_is_put_is_found(subject: Subject) -> None:
    put = subject.put("a")
    found = subject.tier.get("a")
    assert found is not None
    assert (found.key, found.info, found.components) == ("a", put.info, put.components)
    assert subject.tier.get("b") is None
    assert subject.held() == ["a"]


def test_what_is_put_again_is_replaced_and_counts_once(subject: Subject) -> None:
    subject.put("a", 3 * MIB, name="old")
    subject.put("a", 1 * MIB, name="new")
    found = subject.tier.get("a")
    assert found is not None
    assert found.info.name == "new"
    assert subject.held() == ["a"]
    subject.tier.remove(["a"])
    assert subject.tier.nbytes < MIB


def test_its_bytes_are_counted(subject: Subject) -> None:
    before = subject.tier.nbytes
    subject.put("a", 2 * MIB)
    subject.put("b", 3 * MIB)
    assert 5 * MIB <= subject.tier.nbytes - before < 6 * MIB
    subject.tier.remove(["b"])
    assert 2 * MIB <= subject.tier.nbytes - before < 3 * MIB


def test_what_is_removed_is_gone_and_what_is_not_there_stays_so(subject: Subject) -> None:
    for key in "abc":
        subject.put(key)
    subject.tier.remove(["a", "c", "d"])
    subject.tier.remove([])
    assert subject.tier.get("a") is None
    assert subject.held() == ["b"]


def test_infos_by_the_beginning_of_the_key_or_the_whole_name(subject: Subject) -> None:
    for key, name in (("ab", "f"), ("ac", "g"), ("bd", "abc"), ("%", "_")):
        subject.put(key, name=name)
    found = {prefix: sorted(info.key for info in subject.tier.infos(prefix)) for prefix in ("a", "abc", "", "x", "%")}
    assert found == {"a": ["ab", "ac"], "abc": ["bd"], "": ["%", "ab", "ac", "bd"], "x": [], "%": ["%"]}


def test_over_its_bound_what_is_worth_least_leaves_but_nothing_pinned(subject: Subject) -> None:
    for number in range(20):
        subject.put(f"{number:02}", age=100.0 - number)
        if number == 0:
            subject.tier.pin(["00", "unknown"], True)
    assert subject.tier.nbytes <= subject.tier.max_bytes
    left = subject.held()
    assert {"00", "19"} < set(left)
    assert left[1:] == [f"{number:02}" for number in range(20)][-len(left) + 1 :]
    subject.tier.pin(["00"], False)
    for number in range(20, 40):
        subject.put(f"{number:02}")
    assert "00" not in subject.held()


def test_without_room_nothing_is_held(make: Callable[[int], Subject]) -> None:
    subject = make(0)
    subject.put("a")
    assert subject.tier.get("a") is None
    assert (subject.held(), subject.tier.nbytes) == ([], 0)


def test_threads_find_what_they_put(subject: Subject) -> None:
    together, lost = threading.Barrier(THREADS), []

    def work(number: int) -> None:
        together.wait()
        for turn in range(ROUNDS):
            key = f"{number} {turn}"
            subject.put(key, 1000)
            if subject.tier.get(key) is None:
                lost.append(key)
            subject.tier.remove([key])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (lost, subject.held()) == ([], [])
