"""Names expire by the time that passes."""

import types
from typing import Any, cast

import pytest

from jitserver.daemon import named_array_requests
from jitserver.daemon.arrays.named_arrays import NamedArrays, NamedTree


def test_a_clock_that_is_set_ends_no_time_to_live(monkeypatch: pytest.MonkeyPatch) -> None:
    now, passed = 1e9, 0.0
    clock = types.SimpleNamespace(
        time=lambda: now, clock_gettime=lambda _: passed, monotonic=lambda: passed, CLOCK_BOOTTIME=7
    )
    monkeypatch.setattr(named_array_requests, "time", clock)
    sessions = types.SimpleNamespace(all=list, last_change=0.0)
    names = named_array_requests.NamedArrayRequests(cast(Any, None), cast(Any, sessions))
    names.trees = NamedArrays(lambda: now)
    names.trees.put("kept", NamedTree("", (), b"", "", (), 3600.0))
    for by in (1e8, -2e8):
        now += by
        names.expire()
        assert list(names.trees.all()) == ["kept"]
    now, passed = now + 3601, passed + 3601
    names.expire()
    assert list(names.trees.all()) == []
