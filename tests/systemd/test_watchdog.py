import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jitserver.system import sd_notify


@pytest.fixture
def heard(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[bytes]]]:
    """Return the messages that systemd, had it started us, has received since the last look."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock:
        sock.bind(str(short_path / "notify"))
        monkeypatch.setitem(os.environ, "NOTIFY_SOCKET", str(short_path / "notify"))

        def received() -> list[bytes]:
            found = []
            while True:
                try:
                    found.append(sock.recv(100))
                except BlockingIOError:
                    return found

        yield received


def nobody() -> bool:
    return False


def test_it_says_so_after_each_beat(heard: Callable[[], list[bytes]], until: Callable[..., Any]) -> None:
    beats: list[int] = []
    watchdog = sd_notify.Watchdog(0.0, lambda: beats.append(1), nobody)
    for count in (1, 2):
        watchdog.tick()
        assert until(heard, "the notification") == [b"WATCHDOG=1"]
        assert len(beats) == count
        until(lambda: not watchdog._thread.is_alive(), "the end of the beat")


def test_it_waits_between_beats(heard: Callable[[], list[bytes]], until: Callable[..., Any]) -> None:
    watchdog = sd_notify.Watchdog(3600.0, lambda: None, nobody)
    watchdog.tick()
    until(heard, "the first notification")
    until(lambda: not watchdog._thread.is_alive(), "the end of the beat")
    watchdog.tick()
    assert not watchdog._thread.is_alive()
    assert heard() == []


def test_a_beat_that_fails_is_silent_and_tried_again(
    heard: Callable[[], list[bytes]], until: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    failing = True

    def beat() -> None:
        if failing:
            raise RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS")

    watchdog = sd_notify.Watchdog(0.0, beat, nobody)
    watchdog.tick()
    until(lambda: "CUDA_ERROR_ILLEGAL_ADDRESS" in caplog.text, "the failure in the log")
    until(lambda: not watchdog._thread.is_alive(), "the end of the beat")
    assert heard() == []
    failing = False
    watchdog.tick()
    assert until(heard, "the notification") == [b"WATCHDOG=1"]


@pytest.mark.parametrize("clients", [True, False])
def test_a_beat_that_waits_is_a_fault_only_without_clients(
    heard: Callable[[], list[bytes]], until: Callable[..., Any], clients: bool
) -> None:
    free = threading.Event()
    watchdog = sd_notify.Watchdog(0.0, lambda: free.wait(60) and None, lambda: clients)
    watchdog.tick()
    watchdog.tick()
    assert heard() == ([b"WATCHDOG=1"] if clients else [])
    free.set()
    assert until(heard, "the notification") == [b"WATCHDOG=1"]


def test_the_heart_beats_on_the_devices_of_this_process() -> None:
    import jax

    from jitserver.programs.devices.heartbeat import DeviceHeartbeat

    heart = DeviceHeartbeat()
    heart.beat()
    assert len(heart._programs) == len(jax.local_devices())
    program, one = heart._programs[0]
    heart._programs[0] = (lambda x: program(x) + 1, one)
    with pytest.raises(RuntimeError, match=r"1 \+ 1 = \[3.0"):
        heart.beat()


@pytest.mark.parametrize(("says", "sick"), [("RESOURCE_EXHAUSTED: Out of memory", False), ("INTERNAL: gone", True)])
def test_a_full_device_is_no_sick_one(says: str, sick: bool) -> None:
    import jax

    from jitserver.programs.devices.heartbeat import DeviceHeartbeat

    def program(x: object) -> float:
        raise jax.errors.JaxRuntimeError(says)

    heart = DeviceHeartbeat()
    heart._programs = [(program, jax.numpy.float32(1))]
    if sick:
        with pytest.raises(jax.errors.JaxRuntimeError, match="gone"):
            heart.beat()
    else:
        heart.beat()
