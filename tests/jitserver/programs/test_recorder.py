"""Recordings of the daemon's profiler, where it fails, and the annotations of clients."""

from unittest.mock import Mock

import pytest
from jax.profiler import ProfileData, TraceAnnotation

from jitclient.jaxside import profiler
from jitclient.wire.encoding import decoded
from jitclient.wire.recording import Annotation, Record, Recorded
from jitserver.programs import recorder
from jitserver.programs.recorder import Annotations, DaemonRecording, Recorder


def names(recording: DaemonRecording) -> list[str]:
    planes = ProfileData.from_serialized_xspace(decoded(recording.fetch(0), Recorded).xspace).planes
    return [event.name for plane in planes for line in plane.lines for event in line.events]


def test_a_profiler_that_does_not_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    records = Recorder()
    with monkeypatch.context() as patched:
        patched.setattr(profiler, "session", Mock(side_effect=ValueError("another one is active")))
        with pytest.raises(ValueError, match="another one is active"):
            records.begin(Record())
    assert not records.is_on
    records.begin(Record()).close()


def test_there_is_one_recording_at_a_time() -> None:
    records = Recorder()
    recording = records.begin(Record())
    with pytest.raises(RuntimeError, match="for another client"):
        records.begin(Record())
    assert records.is_on
    with TraceAnnotation("within"):
        pass
    assert "within" in names(recording)
    assert not records.is_on
    other = records.begin(Record())
    recording.close()  # once more, without effect
    assert records.is_on
    other.close()
    assert not records.is_on


def test_a_profiler_that_fails_at_the_end_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = Mock(stop=Mock(side_effect=ValueError("it broke")))
    monkeypatch.setattr(profiler, "session", lambda _: failing)
    records = Recorder()
    recording = records.begin(Record())
    with pytest.raises(ValueError, match="it broke"):
        recording.fetch(0)
    assert not records.is_on


def test_a_recording_is_fetched_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "PART_BYTES", 100)
    recording = Recorder().begin(Record())
    parts = [recording.fetch(0)]
    while len(parts[-1]) == 100:
        parts.append(recording.fetch(100 * len(parts)))
    found = decoded(b"".join(parts), Recorded)
    assert all((found.host, found.xspace, found.trace))


def test_annotations_end_with_their_connection() -> None:
    recording = Recorder().begin(Record())
    annotations = Annotations()
    annotations.follow(Annotation(1, "ended", {"step_num": "4"}))
    annotations.follow(Annotation(2, "left open"))
    annotations.follow(Annotation(1))
    annotations.follow(Annotation(7))  # of an earlier connection
    annotations.end()
    assert {"ended", "left open"} <= set(names(recording))


def test_a_client_cannot_open_any_number_of_annotations() -> None:
    annotations = Annotations()
    for number in range(recorder._MAX_OPEN + 5):
        annotations.follow(Annotation(number, "open"))
    assert len(annotations._open) == recorder._MAX_OPEN
    annotations.end()
    assert not annotations._open
