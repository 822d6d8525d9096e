"""Programs over several devices take turns, and a callback that waits for its own turn raises."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jitclient.errors import SessionBusy
from jitserver.programs.devices import serial

PATIENCE = "_PATIENCE_SECONDS"


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def run_for(client: object, run: Callable[[], Any], *ask: Callable[[], Any]) -> Any:
    """Run a program for a client as a thread of the daemon does, perhaps with a callback."""
    serial.set_client(client)
    return serial.run_serially(run, *map(serial.recording_callbacks, ask))


def calls_back(ask: Callable[[], Any]) -> Any:
    return ask()


def test_a_callback_that_waits_for_its_own_turn_is_told(
    threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serial, PATIENCE, 0.01)
    client = object()
    with pytest.raises(SessionBusy, match="waits for a callback of this process"):
        run_for(client, calls_back, lambda: threads.submit(run_for, client, lambda: 1).result(60))
    assert run_for(client, lambda: 2) == 2


class TakenFor:
    """A lock that is free once all steps are done, of which each attempt to take it does one."""

    def __init__(self, *steps: Callable[[], Any]) -> None:
        self.steps = list(steps)

    def acquire(self, timeout: float) -> bool:
        assert timeout == getattr(serial, PATIENCE)
        if self.steps:
            self.steps.pop(0)()
            return False
        return True

    def release(self) -> None:
        pass


def test_another_client_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    def other() -> int:
        lock = TakenFor(*[lambda: None] * 5)
        with monkeypatch.context() as patch:
            patch.setattr(serial, "_device_lock", lock)
            found: int = run_for(object(), lambda: 3)
        assert not lock.steps
        return found

    assert run_for(object(), calls_back, other) == 3


def test_a_program_with_many_callbacks_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    client = object()
    monkeypatch.setattr(serial, "_callbacks", running := dict[object, object]())

    def next_callback() -> None:
        running.clear()
        running[object()] = client

    monkeypatch.setattr(serial, "_device_lock", lock := TakenFor(*[next_callback] * 5))
    assert run_for(client, lambda: 4) == 4
    assert not lock.steps
