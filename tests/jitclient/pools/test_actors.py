"""The actors of Ray as the ordinary classes that they are."""

import os
import signal
from collections.abc import Iterator

import pytest

from jitclient.pools.actors import WorkerActor
from jitclient.session import launch

COPY = 'echo "to $WHERE" >&2; echo $$; exec 2>&-; exec cat'


@pytest.fixture
def actor(monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerActor]:
    """An actor whose worker prints its pid, and then what it reads."""
    monkeypatch.setattr(launch, "program", lambda _: ["/bin/sh", "-c", COPY])
    made = WorkerActor({"WHERE": "the daemon"})
    yield made
    made.write(b"")
    while made.read()[2] is None:
        pass
    made._stream.close()
    made._process.stderr.close()  # type: ignore[union-attr]


def read_until(actor: WorkerActor, wanted: bytes) -> bytes:
    found = b""
    while not found.endswith(wanted):
        found += actor.read()[0]
    return found


def test_streams_go_through_the_actor(actor: WorkerActor) -> None:
    out = said = b""
    while not (out.endswith(b"\n") and said.endswith(b"\n")):
        more, errors, _ = actor.read()
        out, said = out + more, said + errors
    assert said == b"to the daemon\n"
    actor.write(b"some bytes")
    assert read_until(actor, b"bytes") == b"some bytes"
    actor.write(b"")
    assert actor.read()[2] == 0


def test_a_worker_that_is_killed_has_its_signal_as_status(actor: WorkerActor) -> None:
    worker = int(read_until(actor, b"\n"))
    os.kill(worker, signal.SIGKILL)
    status = None
    while status is None:
        status = actor.read()[2]
    assert status == -signal.SIGKILL
    # A worker that has exited reads nothing more.
    actor.write(b"x")


def test_the_end_of_what_ray_ends_leaves_the_worker_to_end_itself(actor: WorkerActor) -> None:
    worker = int(read_until(actor, b"\n"))
    assert worker != actor.pid()
    os.kill(actor.pid(), signal.SIGKILL)
    actor.write(b"still there")
    assert read_until(actor, b"there") == b"still there"
