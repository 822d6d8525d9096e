"""Threads live from their start to their end, and say why they failed, or did not begin."""

import _thread
import threading

import pytest

from jitclient.core import threads
from jitclient.core.threads import Thread


def test_a_thread_lives_from_its_start_to_its_end() -> None:
    goes_on, known = threading.Event(), {*threading.enumerate()}
    thread = Thread(lambda: goes_on.wait(60), "worker")
    assert not thread.is_alive()
    thread.start()
    assert thread.is_alive()
    goes_on.set()
    thread.join(60)
    assert not thread.is_alive()
    assert {*threading.enumerate()} <= known  # programs may count their threads


def test_a_thread_that_fails_says_so_and_has_ended(caplog: pytest.LogCaptureFixture) -> None:
    thread = Thread(lambda: 1 / 0, "worker")
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert "the thread 'worker' has failed" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_a_thread_that_does_not_begin_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_thread, "start_new_thread", lambda *_: 1)
    monkeypatch.setattr(threads, "_START_SECONDS", 0.01)
    thread = Thread(lambda: None, "worker")
    with pytest.raises(RuntimeError, match="'worker' did not start"):
        thread.start()
    assert not thread.is_alive()
