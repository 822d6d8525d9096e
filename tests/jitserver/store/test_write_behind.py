"""Jobs of the background: done when it is quiet, at once when time is short."""

import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from jitserver.store import write_behind as writer_module
from jitserver.store.write_behind import Writer


def test_jobs_are_done_in_their_order_and_one_that_fails_stops_none(until: Callable[..., Any], caplog: Any) -> None:
    writer, done = Writer(lambda: 0), list[int]()

    def fail() -> None:
        raise ValueError("this one")

    writer.add("a", lambda: done.append(1))
    writer.add("b", fail)
    writer.add("c", lambda: done.append(3))
    until(lambda: done == [1, 3], "the last job")
    assert "this one" in caplog.text


def test_it_waits_while_something_goes_on() -> None:
    activity, looked, done = iter(range(10**9)), threading.Event(), threading.Event()

    def busy() -> int:
        found = next(activity)
        if found == 20:
            looked.set()
        return found

    writer = Writer(busy)
    writer.add("a", done.set)
    assert looked.wait(60)
    assert not done.is_set()
    assert writer.finish(60)
    assert done.is_set()


def test_a_job_that_was_not_begun_can_be_cancelled() -> None:
    activity, done = iter(range(10**9)), list[str]()
    writer = Writer(lambda: next(activity))
    for name in "abc":
        writer.add(name, lambda name=name: done.append(name))
    writer.cancel("b")
    writer.cancel("x")
    assert writer.finish(60)
    assert done == ["a", "c"]


def test_a_job_that_is_done_is_freed(until: Callable[..., Any]) -> None:
    def job() -> None:
        pass

    writer, is_alive = Writer(lambda: 0), weakref.ref(job)
    writer.add("a", job)
    del job
    assert writer.finish(60)
    until(lambda: is_alive() is None, "the job to be freed")


def test_finishing_tells_whether_time_was_enough() -> None:
    go = threading.Event()
    writer = Writer(lambda: 0)
    writer.add("a", lambda: go.wait(60) and None)
    assert not writer.finish(0.01)
    go.set()
    assert writer.finish(60)


def test_what_has_waited_for_long_waits_for_no_quiet(
    until: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "_PATIENCE_SECONDS", 0.0)
    activity, done = iter(range(10**9)), list[int]()
    writer = Writer(lambda: next(activity))
    for number in range(100):
        writer.add(f"{number}", lambda number=number: done.append(number))
    until(lambda: done == list(range(100)), "all jobs")
