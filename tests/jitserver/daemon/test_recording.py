"""The recording of a connection, fetched in parts."""

from typing import Any

import pytest

from jitclient.wire.encoding import decoded
from jitclient.wire.recording import Record, Recorded
from jitserver.daemon import recording
from jitserver.daemon.recording import ConnectionRecording
from jitserver.programs.recorder import Recorder


def test_it_is_fetched_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "PART_BYTES", 100)
    recorder = Recorder()
    of_connection = ConnectionRecording(recorder, Record())
    assert recorder.is_on
    found, first = b"", of_connection.fetch(0)
    assert not recorder.is_on
    while len(found) < first.nbytes:
        part: Any = of_connection.fetch(len(found)).part
        assert 0 < len(part) <= 100
        found += part
    [part] = decoded(found, list[Recorded])
    assert part.xspace
    of_connection.close()


def test_a_connection_that_closes_records_no_more() -> None:
    recorder = Recorder()
    ConnectionRecording(recorder, Record()).close()
    assert not recorder.is_on
