"""The programs that are kept: those that took long, were used lately, and take little."""

import time
from collections.abc import Callable
from typing import Any

from jitserver.store.entry import eviction_score

DAY = 24 * 3600.0


def test_long_lately_little(info: Callable[..., Any]) -> None:
    now = time.time()
    assert eviction_score(info("a", seconds=60), now) > 10 * eviction_score(info("b", seconds=0.1), now)
    assert eviction_score(info("a", seconds=60, disk_bytes=12 << 20), now) > eviction_score(
        info("b", seconds=0.1, disk_bytes=5000), now
    )
    assert eviction_score(info("a", age=DAY), now) > eviction_score(info("b", age=2 * DAY), now)
    assert eviction_score(info("a", disk_bytes=0), now) > eviction_score(info("b", disk_bytes=1 << 20), now)


def test_every_three_days_without_use_halve_it(info: Callable[..., Any]) -> None:
    now = time.time()
    fresh, old = info("a", last_used=now), info("b", last_used=now - 3 * DAY)
    assert abs(eviction_score(fresh, now) / eviction_score(old, now) - 2) < 1e-9


def test_a_clock_that_was_set_back_makes_nothing_worth_more(info: Callable[..., Any]) -> None:
    now = time.time()
    assert eviction_score(info("a", last_used=now + DAY), now) == eviction_score(info("a", last_used=now), now)
