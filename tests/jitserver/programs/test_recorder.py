"""Recordings of the daemon's profiler, where it fails, and the annotations of clients."""

from typing import Any

import pytest
from jax.profiler import ProfileData, TraceAnnotation

from jitclient.jaxside import profiler
from jitclient.wire.recording import Annotation, Record
from jitserver.programs import recorder
from jitserver.programs.recorder import Annotations, Recorder


def names(xspace: bytes) -> list[str]:
    planes = ProfileData.from_serialized_xspace(xspace).planes
    return [event.name for plane in planes for line in plane.lines for event in line.events]


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Has XLA's profiler refuse to start."""

    def refuse(*_: object) -> None:
        raise ValueError("another one is active")

    return lambda: monkeypatch.setattr(profiler, "session", refuse)


def test_a_profiler_that_does_not_start_is_an_error(fails: Any) -> None:
    records = Recorder()
    fails()
    with pytest.raises(RuntimeError, match=r"does not start \(another one is active\)"):
        records.begin(Record())
    assert (records.is_on, records.count()) == (False, 0)


def test_other_recordings_have_what_was_before(fails: Any) -> None:
    records = Recorder()
    recording = records.begin(Record())
    with TraceAnnotation("before"):
        pass
    fails()
    with pytest.raises(RuntimeError, match="does not start"):
        records.begin(Record())
    assert records.is_on
    first, second = sorted(records.end(recording), key=lambda part: part.why)
    assert "before" in names(first.xspace)
    assert "does not start" in second.why
    assert not records.is_on
    assert records.end(recording) is recording.parts  # once more, without effect
    assert len(recording.parts) == 2


def test_a_profiler_that_fails_at_the_end_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        def stop(self) -> None:
            raise ValueError("it broke")

    monkeypatch.setattr(profiler, "session", lambda *_: Failing())
    records = Recorder()
    [part] = records.end(records.begin(Record()))
    assert (part.xspace, part.why) == (b"", "XLA's profiler failed (it broke)")


def test_the_options_are_those_of_all_recordings(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    real = profiler.session
    monkeypatch.setattr(profiler, "session", lambda *options: asked.append(options) or real(*options))
    records = Recorder()
    first = records.begin(Record(1, False, {"gpu_num_chips_to_profile_per_task": 1}))
    second = records.begin(Record(3, True))
    records.end(first)
    records.end(second)
    advanced = {"gpu_num_chips_to_profile_per_task": 1}
    assert asked == [(1, False, advanced), (3, True, advanced), (3, True, {})]


def test_annotations_end_with_their_connection() -> None:
    records = Recorder()
    recording = records.begin(Record())
    annotations = Annotations()
    annotations.follow(Annotation(1, "ended", {"step_num": "4"}))
    annotations.follow(Annotation(2, "left open"))
    annotations.follow(Annotation(1))
    annotations.follow(Annotation(7))  # of an earlier connection
    annotations.end()
    [part] = records.end(recording)
    assert {"ended", "left open"} <= set(names(part.xspace))


def test_a_client_cannot_open_any_number_of_annotations() -> None:
    annotations = Annotations()
    for number in range(recorder._MAX_OPEN + 5):
        annotations.follow(Annotation(number, "open"))
    assert len(annotations._open) == recorder._MAX_OPEN
    annotations.end()
    assert not annotations._open
