"""What is kept: what took long, was used lately, and takes little."""

import time
from collections.abc import Callable
from typing import Any

from jitserver.store.entry import worth

DAY = 24 * 3600.0


def test_long_lately_little(info: Callable[..., Any]) -> None:
    now = time.time()
    assert worth(info("a", seconds=60), now) > 10 * worth(info("b", seconds=0.1), now)
    assert worth(info("a", seconds=60, disk_bytes=12 << 20), now) > worth(info("b", seconds=0.1, disk_bytes=5000), now)
    assert worth(info("a", age=DAY), now) > worth(info("b", age=2 * DAY), now)
    assert worth(info("a", disk_bytes=0), now) > worth(info("b", disk_bytes=1 << 20), now)


def test_every_three_days_without_use_halve_it(info: Callable[..., Any]) -> None:
    now = time.time()
    fresh, old = info("a", last_used=now), info("b", last_used=now - 3 * DAY)
    assert abs(worth(fresh, now) / worth(old, now) - 2) < 1e-9


def test_a_clock_that_was_set_back_makes_nothing_worth_more(info: Callable[..., Any]) -> None:
    now = time.time()
    assert worth(info("a", last_used=now + DAY), now) == worth(info("a", last_used=now), now)
