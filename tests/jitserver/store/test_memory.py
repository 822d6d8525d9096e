"""The memory tier: within its bounds, it keeps what is worth most."""

import gc
import mmap
import time
from collections.abc import Callable
from typing import Any

from jitserver.store.entry import OVERHEAD_BYTES, Recipe
from jitserver.store.memory import MemoryTier, maps_of_process

MANY = 1 << 40
DAY = 24 * 3600.0


def keys(memory: MemoryTier) -> list[str]:
    return [info.key for info in memory.infos()]


def test_what_is_added_again_replaces_what_was_there_and_counts_once(entry: Callable[..., Any]) -> None:
    memory = MemoryTier(MANY, MANY)
    old, new = entry("a"), entry("a", code_bytes=10)
    memory.put(old)
    memory.put(new)
    assert memory.get("a") is new
    assert not old.info.in_memory
    assert new.info.in_memory
    assert memory.nbytes == OVERHEAD_BYTES + 10
    memory.remove(["a", "b"])
    assert memory.get("a") is None
    assert (memory.nbytes, len(memory)) == (0, 0)


def test_over_its_bytes_a_long_compilation_outlives_ten_short_ones(entry: Callable[..., Any]) -> None:
    memory = MemoryTier(10 * OVERHEAD_BYTES, MANY)
    memory.put(entry("long", seconds=60.0))
    for number in range(10):
        memory.put(entry(f"short {number}", seconds=0.1))
    assert "long" in keys(memory)
    assert memory.nbytes <= 9 * OVERHEAD_BYTES


def test_what_was_used_long_ago_leaves_first(entry: Callable[..., Any]) -> None:
    memory = MemoryTier(3 * OVERHEAD_BYTES, MANY)
    for key, age in (("a", 0.0), ("b", 30 * DAY), ("c", DAY), ("d", 0.0)):
        memory.put(entry(key, age=age))
    assert keys(memory) == ["a", "d"]


def test_one_that_was_just_asked_for_stays_until_a_session_can_hold_it(entry: Callable[..., Any]) -> None:
    memory = MemoryTier(2 * OVERHEAD_BYTES, MANY)
    for key in "abc":
        memory.put(entry(key, last_used=time.time()))
    assert keys(memory) == ["a", "b", "c"]


def test_pinned_ones_and_those_that_a_session_needs_stay(entry: Callable[..., Any]) -> None:
    memory = MemoryTier(2 * OVERHEAD_BYTES, MANY)
    held = entry("held", age=DAY)
    held.holders.add("a session")
    memory.put(held)
    memory.put(entry("pinned", age=DAY, pinned=True))
    memory.put(entry("fresh"))
    assert keys(memory) == ["held", "pinned"]
    held.holders.clear()
    memory.put(entry("next"))
    assert keys(memory) == ["pinned"]
    assert held.program.run is not None  # no client can call it: there is no need to have it rest


def test_one_that_a_session_holds_rests_when_it_is_idle_and_on_the_disk(entry: Callable[..., Any]) -> None:
    memory = MemoryTier(int(2.3 * OVERHEAD_BYTES), MANY)
    busy, idle = entry("busy", disk_bytes=10, age=DAY), entry("idle", disk_bytes=10)
    busy.program.last_call = time.monotonic()
    for each in (busy, idle):
        each.holders.add("a session")
        memory.put(each)
    memory.put(entry("free", age=30 * DAY, disk_bytes=10))
    assert keys(memory) == ["busy", "idle"]  # a program that no session holds goes first
    memory.put(entry("pinned", pinned=True))
    assert keys(memory) == ["busy", "pinned"]
    assert idle.program.run is None


def test_one_that_has_left_the_disk_stays_where_a_session_holds_it(entry: Callable[..., Any]) -> None:
    memory = MemoryTier(OVERHEAD_BYTES, MANY)
    held = entry("a", disk_bytes=10)
    held.holders.add("a session")
    memory.put(held)
    assert memory.allow_eviction("a")
    memory.put(entry("b", pinned=True))
    assert keys(memory) == ["a", "b"]
    assert held.program.run == "executable of a"


def test_one_that_comes_back_is_the_one_that_sessions_hold(entry: Callable[..., Any]) -> None:
    memory = MemoryTier(OVERHEAD_BYTES, MANY)
    held = entry("a", disk_bytes=10)
    held.holders.add("a session")
    memory.put(held)
    memory.put(entry("b", pinned=True))
    assert keys(memory) == ["b"]
    assert not memory.allow_eviction("a")
    memory.remove(["b"])
    again = entry("a", disk_bytes=10)
    assert memory.put(again) is held
    assert memory.get("a") is held
    assert memory.allow_eviction("a")
    assert held.program.run == again.program.run == "executable of a"
    assert memory.put(entry("c", age=DAY)).key == "c"


def test_over_its_memory_maps_programs_leave(entry: Callable[..., Any]) -> None:
    memory = MemoryTier(MANY, 400, lambda: 100 + 6 * len(memory))
    for number in range(200):
        memory.put(entry(f"{number:03}"))
        assert 100 + 6 * len(memory) <= 400 + 6 * 16
    assert len(memory) > 30
    assert memory.get("199") is not None


def test_the_maps_of_a_process_are_counted() -> None:
    before = maps_of_process()
    kinds = (mmap.PROT_READ, mmap.PROT_READ | mmap.PROT_WRITE) * 50  # equal neighbours would be one map
    held = [mmap.mmap(-1, mmap.PAGESIZE, prot=kind) for kind in kinds]
    assert maps_of_process() >= before + 50
    for each in held:
        each.close()


def recipe(key: str, stored: Callable[..., Any]) -> Recipe:
    return Recipe(stored(key, created=0.0, last_used=0.0), b"capture")


def test_held_ones_that_no_disk_has_leave_if_they_can_be_made_again(
    entry: Callable[..., Any], stored: Callable[..., Any]
) -> None:
    memory = MemoryTier(10 * OVERHEAD_BYTES, MANY)
    held = [entry(f"{number}") for number in range(100)]
    for each in held:
        each.holders.add("a session")
        each.recipe = recipe(each.key, stored)
        memory.put(each)
    assert memory.nbytes <= 10 * OVERHEAD_BYTES
    assert memory.recipe("0") is held[0].recipe
    assert memory.put(entry("0")) is held[0]
    assert memory.recipe("0") is None, "it is in memory"


def test_held_ones_may_leave_the_disk_if_they_can_be_made_again(
    entry: Callable[..., Any], stored: Callable[..., Any]
) -> None:
    memory = MemoryTier(int(1.5 * OVERHEAD_BYTES), MANY)
    unloaded, loaded = entry("unloaded", disk_bytes=10), entry("loaded", disk_bytes=10)
    for each in (unloaded, loaded):
        each.holders.add("a session")
        memory.put(each)
    assert keys(memory) == ["loaded"]
    assert not memory.allow_eviction("unloaded", lambda key: None)
    for each in (unloaded, loaded):
        assert memory.allow_eviction(each.key, lambda key: recipe(key, stored))
        assert (each.info.disk_bytes, each.recipe) == (0, recipe(each.key, stored))


def test_what_sessions_let_go_of_leaves(entry: Callable[..., Any]) -> None:
    memory = MemoryTier(10 * OVERHEAD_BYTES, MANY)
    held = [entry(f"{number}") for number in range(100)]
    for each in held:
        each.holders.add("a session")
        memory.put(each)
    assert len(memory) == 100
    for each in held:
        each.holders.clear()
    memory.trim()
    assert memory.nbytes <= 10 * OVERHEAD_BYTES


def test_an_unloaded_program_is_freed_with_its_last_holder(entry: Callable[..., Any]) -> None:
    memory = MemoryTier(OVERHEAD_BYTES, MANY)
    held = entry("held", disk_bytes=10)
    held.holders.add("a session")
    memory.put(held)
    memory.put(entry("pinned", pinned=True))
    gc.disable()
    try:
        del held
        assert memory.allow_eviction("held"), "no object is left"
    finally:
        gc.enable()
