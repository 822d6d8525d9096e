"""The log of what left the cache because of a limit."""

import logging
from pathlib import Path

import pytest

from jitserver.store.eviction_log import EvictionLog


def test_each_directory_has_a_line_a_minute_with_all_that_left_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    evictions = EvictionLog()
    here, there = Path("here"), Path("there")
    for directory, count in ((here, 0), (here, 2), (here, 3), (there, 4)):
        evictions.add(directory, count)
        now[0] += 10
    now[0] += 60
    evictions.add(here, 0)
    evictions.add(here, 1)
    lines = [record.getMessage() for record in caplog.records]
    assert [line.removeprefix("disk cache: evicted ").removesuffix(" over the limit") for line in lines] == [
        "2 programs and files from here",
        "3 programs and files from here",
        "4 programs and files from there",
    ]
