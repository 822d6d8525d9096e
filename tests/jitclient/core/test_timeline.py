"""The time line of a process: none at all unless a report needs it, and none in a forked child."""

import os
import threading

import pytest

from jitclient.core import timeline
from jitclient.core.spans import Timeline


def test_nothing_is_added_without_a_time_line() -> None:
    assert timeline.current is None
    with timeline.span("trace"):
        pass
    assert timeline.span("trace") is timeline.span("lower")


def test_a_time_line_begins_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "current", None)
    line = timeline.begin()
    with timeline.span("trace", "f"):
        pass
    assert timeline.begin() is line
    assert [(span.kind, span.label) for span in line.spans] == [("trace", "f")]


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning", "ignore:os.fork:RuntimeWarning")
def test_a_forked_child_adds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "current", Timeline())
    is_held, may_end = threading.Event(), threading.Event()
    line = timeline.begin()

    def hold() -> None:
        with line._lock:
            is_held.set()
            may_end.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    is_held.wait()
    child = os.fork()
    if child == 0:
        with line.span("trace"):  # began in the parent, and its lock is held there
            pass
        os._exit(0 if timeline.current is None else 1)
    may_end.set()
    holder.join()
    assert os.waitpid(child, 0)[1] == 0
    assert timeline.current is line
