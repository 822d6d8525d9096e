"""Concurrent threads use the cache."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jitserver.store.disk import Store
from jitserver.store.memory import MemoryTier
from jitserver.store.tiers import Tiers
from jitserver.store.write_behind import Writer

THREADS, ROUNDS = 8, 20


class Slow(int):
    """A number that other threads get to read while it is added to."""

    def __add__(self, other: int) -> "Slow":
        together = Slow(int(self) + other)
        os.sched_yield()
        return together


def test_no_use_of_a_program_is_lost(tmp_path: Path, entry: Callable[..., Any]) -> None:
    tiers = Tiers(MemoryTier(1 << 40, 1 << 20), Store(tmp_path, 0), Writer(lambda: 0))
    used = entry("a", hits=Slow())
    together = threading.Barrier(THREADS)

    def use() -> None:
        together.wait()
        for _ in range(ROUNDS):
            tiers.used(used)

    threads = [threading.Thread(target=use) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert used.info.hits == THREADS * ROUNDS


def test_at_the_end_the_disk_knows_how_long_calls_took(
    tmp_path: Path, entry: Callable[..., Any], stored: Callable[..., Any]
) -> None:
    tiers = Tiers(MemoryTier(1 << 40, 1 << 20), Store(tmp_path, 1 << 30), Writer(lambda: 0))
    for key, slowest in (("called", 0.5), ("not called", 0.0)):
        kept, row = entry(key), stored(key, slowest=2.0)
        kept.program.slowest = slowest
        kept.info = row.info
        tiers.keep(kept, row, bytes, b"")
    assert tiers.close(60)
    assert {info.key: info.slowest for info in Store(tmp_path, 1 << 30).infos()} == {"called": 0.5, "not called": 2.0}
