"""The progress line begins during long work, and never after it."""

import threading

import pytest
from rich.progress import Progress

from jitclient.core import events, progress
from jitclient.core.threads import Thread


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Is set when the line begins."""
    event = threading.Event()
    monkeypatch.setattr(progress, "is_terminal", lambda: True)
    monkeypatch.setattr(Progress, "start", lambda self: event.set())
    return event


def test_it_begins_during_long_work(begun: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0.0)
    with progress.shown("f()", enabled=True):
        events.log.begin("tracing")
        assert begun.wait(60)


def test_it_does_not_begin_after_short_work(begun: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 600.0)
    made: list[Thread] = []
    monkeypatch.setattr(progress, "Thread", lambda *how: made.append(Thread(*how)) or made[-1])
    with progress.shown("f()", enabled=True):
        assert made[0].is_alive()
    made[0].join(60)
    assert not made[0].is_alive()
    assert not begun.is_set()


@pytest.mark.usefixtures("begun")
def test_a_phase_is_shown_on_the_threads_innermost_line(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(Progress, "update", lambda self, task, description: shown.append(description))
    with progress.shown("f()", enabled=True):
        with progress.shown("g()", enabled=True):
            events.log.begin("tracing")
        with progress.shown("h()", enabled=False):
            events.log.begin("tracing")
        events.log.begin("lowering")
        other = Thread(lambda: events.log.begin("compiling"), "other")
        other.start()
        other.join(60)
    events.log.begin("running")
    assert shown == ["tracing g()", "lowering f()"]
