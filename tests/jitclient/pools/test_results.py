"""The results of a map: their order, their time, and the bar of a terminal."""

import concurrent.futures
from collections.abc import Callable
from typing import Any

import pytest
from rich.progress import Progress

from jitclient.pools import progress
from jitclient.pools.results import FutureSink, MapSink


class Bar:
    def __init__(self) -> None:
        self.shown: list[int] = []
        self.is_closed = False

    def show(self, finished: int) -> None:
        self.shown.append(finished)

    def close(self) -> None:
        self.is_closed = True


def test_values_come_in_order_and_the_bar_ends_with_them() -> None:
    sink, bar = MapSink(None), Bar()
    sink.finish([(2, "c", None), (0, "a", None)])
    values = sink.values(lambda taken: (3, True), lambda: bar)
    assert next(values) == "a"
    sink.finish([(1, "b", None)])
    assert list(values) == ["b", "c"]
    assert (bar.shown, bar.is_closed) == ([2, 3], True)


def test_a_map_that_is_not_read_to_its_end_begins_no_more_calls() -> None:
    sink, bar = MapSink(None), Bar()
    sink.finish([(0, None, ValueError("x"))])
    assert sink.start(1)
    with pytest.raises(ValueError, match="x"):
        list(sink.values(lambda taken: (2, True), lambda: bar))
    assert not sink.start(1)
    assert bar.is_closed
    # A call that had begun then finishes, and nothing waits for it.
    sink.finish([(1, "late", None)])


def test_a_value_that_is_late_is_a_timeout() -> None:
    with pytest.raises(TimeoutError):
        next(MapSink(0.0).values(lambda taken: (1, True), Bar))


def test_a_call_that_runs_again_is_not_cancelled_by_its_future() -> None:
    sink = FutureSink()
    assert sink.start(0)
    assert sink.start(0)
    assert not sink.future.cancel()
    sink.cancel(0)
    with pytest.raises(concurrent.futures.CancelledError):
        sink.future.result()


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_bar_is_shown_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch, is_terminal: bool) -> None:
    begun: list[Any] = []
    started: Callable[..., None] = lambda self: begun.append(self.tasks[0].description)
    monkeypatch.setattr(progress, "is_terminal", lambda: is_terminal)
    monkeypatch.setattr(Progress, "start", started)
    bar = progress.bar("train", 3)
    bar.show(2)
    bar.close()
    assert begun == (["train"] if is_terminal else [])
