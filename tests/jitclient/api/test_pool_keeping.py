"""Data that a pool keeps on a host is found there once, and loaded again after the host's daemon has lost it."""

from types import SimpleNamespace
from typing import Any

import pytest

from jitclient.api import pool_keeping
from jitclient.pools import tasks


def test_data_is_found_once_for_each_life_of_the_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    session, kept = SimpleNamespace(generation=1), list[str]()

    def keep(name: str, load: Any, **_: Any) -> Any:
        kept.append(name)
        return load()

    monkeypatch.setattr(pool_keeping.process, "session", lambda: session)
    monkeypatch.setattr(pool_keeping.keeping, "keep", keep)
    monkeypatch.setattr(pool_keeping, "_found", {})
    load = tasks.dumps(lambda: 7)
    assert [pool_keeping._on_host("data", load, None, None) for _ in range(3)] == [7, 7, 7]
    assert kept == ["data"]
    session.generation += 1  # the daemon has crashed
    assert [pool_keeping._on_host("data", load, None, None) for _ in range(3)] == [7, 7, 7]
    assert kept == ["data", "data"]
