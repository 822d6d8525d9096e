"""The lock allows one trace at a time."""

import threading

import pytest

from jitserver.programs.traces import lock
from jitserver.programs.traces.lock import TraceBusy, TraceLock


def test_a_trace_waits_for_the_current_one() -> None:
    traces, said = TraceLock(), []
    first_is_in, first_may_go = threading.Event(), threading.Event()

    def first() -> None:
        with traces.taken():
            first_is_in.set()
            first_may_go.wait(60)
            said.append("first")

    def second() -> None:
        with traces.taken():
            said.append("second")

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    assert first_is_in.wait(60)
    threads[1].start()
    first_may_go.set()
    for thread in threads:
        thread.join(60)
    assert said == ["first", "second"]


def test_no_trace_waits_for_a_long_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "_PATIENCE_SECONDS", 0.0)
    traces = TraceLock()
    with traces.taken(), pytest.raises(TraceBusy, match="busy with a long trace"), traces.taken():
        raise AssertionError("two at once")
    with traces.taken():
        pass


def test_a_trace_that_raises_releases_the_lock() -> None:
    traces = TraceLock()
    with pytest.raises(KeyError), traces.taken():
        raise KeyError
    with traces.taken():
        pass
