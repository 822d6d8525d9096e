"""Data that a pool keeps on a host is found there once, and loaded again after the host's daemon has lost it."""

from types import SimpleNamespace
from typing import Any

import pytest

from jitclient.api import pool_keeping
from jitclient.errors import ArrayLost
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


class Kept:
    """Data that is new each time it is unpickled."""

    def __reduce__(self) -> Any:
        return _next, ()


_numbers: list[int] = []


def _next() -> int:
    _numbers.append(len(_numbers))
    return _numbers[-1]


@pytest.mark.parametrize("deaths", [0, 1, 2])
def test_a_call_whose_daemon_died_runs_once_more_with_its_data_loaded_again(deaths: int) -> None:
    _numbers.clear()
    held = Kept()

    def work(given: int) -> tuple[int, Any]:
        if given < deaths * 2:
            raise ArrayLost("its daemon died")
        return given, held

    ((has_returned, data),) = tasks.run([tasks.dumps(((Kept(),), {}))], tasks.dumps(work))
    if deaths < 2:
        assert has_returned
        # The function is unpickled before its argument, each time.
        assert tasks.result_of((True, data)) == (2 * deaths + 1, 2 * deaths)
    else:
        with pytest.raises(ArrayLost, match="its daemon died"):
            tasks.result_of((has_returned, data))
