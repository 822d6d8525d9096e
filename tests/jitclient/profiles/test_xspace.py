"""Profiles whose events are at other times: what jax reads in them afterwards."""

from typing import Any

import jax
import numpy as np
import pytest
from jax.profiler import ProfileData, TraceAnnotation

from jitclient.jaxside import profiler
from jitclient.profiles import xspace
from jitclient.wire.recording import Record


@pytest.fixture(scope="module")
def recorded() -> bytes:
    session = profiler.session(Record())
    with TraceAnnotation("within", step=7):
        jax.block_until_ready(jax.jit(lambda x: x @ x)(np.ones((8, 8))))
    return bytes(session.stop())


def events(recording: bytes) -> dict[tuple[str, str, str, int], tuple[float, float, dict[str, Any]]]:
    return {
        (plane.name, line.name, event.name, number): (event.start_ns, event.duration_ns, dict(event.stats))
        for plane in ProfileData.from_serialized_xspace(recording).planes
        for line in plane.lines
        for number, event in enumerate(line.events)
    }


@pytest.mark.parametrize("later", [5_000_000_000, 128, 0, -10])
def test_events_move_and_nothing_else(recorded: bytes, later: int) -> None:
    moved = xspace.moved(recorded, later)
    assert profiler.began(moved) == profiler.began(recorded)
    before, after = events(recorded), events(moved)
    assert before.keys() == after.keys()
    for event, (start, duration, stats) in before.items():
        assert after[event] == (start + later, duration, stats)
    assert any(name == "within" for _, _, name, _ in after)


def test_times_of_lines_count() -> None:
    text = "planes { lines { timestamp_ns: 300 events { metadata_id: 1 offset_ps: 4000 duration_ps: 5000 } } }"
    found = events(xspace.moved(ProfileData.text_proto_to_serialized_xspace(text), 1 << 40))
    assert [start for start, *_ in found.values()] == [(1 << 40) + 304]
