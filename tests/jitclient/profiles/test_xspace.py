"""Profiles on another clock and host: what jax reads in them afterwards."""

import time
from typing import Any

import pytest
from jax.profiler import ProfileData, TraceAnnotation

from jitclient.jaxside import profiler
from jitclient.profiles import xspace


@pytest.fixture(scope="module")
def recorded() -> bytes:
    session = profiler.session(2, True, {})
    with TraceAnnotation("within", step=7):
        pass
    found: bytes = session.stop()
    return found


def events(recording: bytes) -> dict[tuple[str, str, str], tuple[float, float, dict[str, Any]]]:
    return {
        (plane.name, line.name, event.name): (event.start_ns, event.duration_ns, dict(event.stats))
        for plane in ProfileData.from_serialized_xspace(recording).planes
        for line in plane.lines
        for event in line.events
    }


def test_a_recording_says_when_it_began(recorded: bytes) -> None:
    hour = 3600 * 10**9
    assert time.time_ns() - hour < xspace.start_of(recorded) < time.time_ns()


@pytest.mark.parametrize(("earlier", "ahead"), [(5_000_000_000, 0), (0, 0), (1_000, 5_000), (-10, 7)])
def test_events_stay_at_their_times(recorded: bytes, earlier: int, ahead: int) -> None:
    began = xspace.start_of(recorded)
    moved = xspace.moved(recorded, began - earlier, ahead, "there-jitserver")
    assert xspace.start_of(moved) == began - earlier
    before, after = events(recorded), events(moved)
    assert before.keys() == after.keys()
    for event, (start, duration, stats) in before.items():
        assert after[event] == (start + earlier - ahead, duration, stats)
    assert any(name == "within" for _, _, name in after)


def test_the_host_is_another(recorded: bytes) -> None:
    moved = xspace.moved(recorded, xspace.start_of(recorded), 0, "there-jitserver")
    assert moved.endswith(b'"\x0fthere-jitserver')  # field 4, hostnames


@pytest.mark.parametrize("damage", ["cut", "kind", "nothing", "number"])
def test_what_is_no_recording_is_refused(recorded: bytes, damage: str) -> None:
    damaged = {"cut": recorded[:-3], "kind": b"\x0b", "nothing": b"", "number": b"\xff" * 20}[damage]
    with pytest.raises(ValueError, match=r"cut off|unknown kind|does not say"):
        xspace.moved(damaged, 0, 0, "there")
