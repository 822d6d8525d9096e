"""Named arrays: keys, time to live, and concurrency."""

import threading
from typing import Any

from jitserver.daemon.arrays.named_arrays import NamedArrays, NamedTree


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def tree(key: str = "k", arrays: Any = (), ttl: float | None = 10.0) -> NamedTree:
    return NamedTree(key, (), b"", "", arrays, ttl)


def nobody(_: NamedTree) -> bool:
    return False


def test_a_name_holds_the_last_tree_and_is_found_under_its_key_only() -> None:
    kept = NamedArrays()
    kept.put("a", tree("one"))
    kept.put("a", tree("two", ["array"]))
    assert kept.find("a", "one", None) is None
    assert kept.find("b", "two", None) is None
    found = kept.find("a", "two", None)
    assert found is not None
    assert found.arrays == ["array"]
    assert len(kept) == 1


def test_get_finds_a_tree_by_name_and_counts_as_a_use() -> None:
    clock = Clock()
    kept = NamedArrays(clock)
    assert kept.get("a") is None
    held = tree("one", ttl=10)
    kept.put("a", held)
    clock.now += 8
    assert kept.get("a") is held
    clock.now += 8
    assert (kept.expire(nobody), held.ttl) == ([], 10)


def test_a_tree_without_a_key_is_never_found() -> None:
    kept = NamedArrays()
    kept.put("a", tree(""))
    assert kept.find("a", "", None) is None


def test_an_unused_name_expires() -> None:
    clock = Clock()
    kept = NamedArrays(clock)
    kept.put("short", tree(ttl=10))
    kept.put("long", tree(ttl=100))
    kept.put("for ever", tree(ttl=None))
    clock.now += 10
    assert kept.expire(nobody) == []
    clock.now += 0.1
    assert kept.expire(nobody) == ["short"]
    clock.now += 1e9
    assert kept.expire(nobody) == ["long"]
    assert list(kept.all()) == ["for ever"]


def test_a_find_is_a_use_and_sets_the_time_to_live() -> None:
    clock = Clock()
    kept = NamedArrays(clock)
    kept.put("a", tree(ttl=10))
    clock.now += 8
    assert kept.find("a", "k", 20.0) is not None
    clock.now += 19
    assert kept.expire(nobody) == []
    clock.now += 2
    assert kept.expire(nobody) == ["a"]


def test_a_find_with_another_key_is_no_use() -> None:
    clock = Clock()
    kept = NamedArrays(clock)
    kept.put("a", tree(ttl=10))
    clock.now += 8
    assert kept.find("a", "other", 20.0) is None
    clock.now += 8
    assert kept.expire(nobody) == ["a"]


def test_holding_a_handle_is_a_use() -> None:
    clock = Clock()
    kept = NamedArrays(clock)
    held = tree(ttl=10)
    kept.put("a", held)
    clock.now += 11
    assert kept.expire(lambda asked: asked is held) == []
    clock.now += 9
    assert kept.expire(nobody) == []  # released a moment ago
    clock.now += 2
    assert kept.expire(nobody) == ["a"]


def test_a_name_that_is_put_again_during_expiry_stays() -> None:
    clock = Clock()
    kept = NamedArrays(clock)
    kept.put("a", tree(ttl=10))
    clock.now += 11

    def put_anew(_: NamedTree) -> bool:
        kept.put("a", tree("new", ttl=10))
        return False

    assert kept.expire(put_anew) == []
    assert kept.all()["a"].key == "new"


def test_forget_returns_the_tree() -> None:
    kept = NamedArrays()
    held = tree()
    kept.put("a", held)
    assert kept.forget("a") is held
    assert kept.forget("a") is None


def test_concurrent_finds_see_whole_trees() -> None:
    kept = NamedArrays()
    odd: list[Any] = []
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            for key in ("0", "1"):
                found = kept.find("a", key, None)
                if found is not None and found.arrays != [key] * 3:
                    odd.append(found)

    lookers = [threading.Thread(target=look) for _ in range(3)]
    for looker in lookers:
        looker.start()
    for n in range(2000):
        key = str(n % 2)
        kept.put("a", tree(key, [key] * 3))
    stop.set()
    for looker in lookers:
        looker.join()
    assert not odd
