"""The client's session against a daemon of the tests: what an exchange that fails leaves behind."""

import gc
import time
import weakref
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

import jitclient
from jitclient import errors
from jitclient.core.settings import Settings
from jitclient.session import process as client_process
from jitclient.session import programs
from jitclient.session import session as client_session
from jitclient.session.handshake import ask
from jitclient.wire.connection import ClientConnection
from jitclient.wire.introspection import Snapshot
from jitclient.wire.messages import Failure, Lookup, Prepare, Run, Signature, Verb


@pytest.fixture
def session(daemon: str) -> Any:
    made = client_session.Session(Settings(address=daemon, autostart=False, fallback="error"))
    yield made
    made.close()


def test_it_connects_at_the_first_exchange_and_resumes_after_a_loss(session: Any) -> None:
    assert session.address is None
    session.run(Run(), [])
    generation, token = session.generation, session._identity.token
    session.disconnect()
    session.run(Run(), [])
    assert (session.generation, session._identity.token) == (generation, token)


def test_a_handle_is_named_once_also_after_a_loss(session: Any) -> None:
    with session:
        first = session.new_handles(3)
    session.disconnect()
    with session:
        assert session.new_handles(1) > first + 2


def test_an_interrupted_exchange_drops_the_connection_and_keeps_what_was_to_be_dropped(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[int, ...]] = []

    def send_frame(self: Any, kind: int, body: bytes, attachments: Any = ()) -> None:
        sent.append(msgspec.msgpack.decode(body, type=Run).drop)
        if len(sent) == 1:
            raise KeyboardInterrupt
        forward(self, kind, body, attachments)

    forward = ClientConnection.send_frame

    with session:
        handle = session.new_handles(1)
        session.drops.append(handle)
        monkeypatch.setattr(ClientConnection, "send_frame", send_frame)
        with pytest.raises(KeyboardInterrupt):
            session.run(Run(), [])
        assert session.connection is None
        session.run(Run(), [])
    assert [drop for drop in sent if drop] == [(handle,)] * 3  # twice with a Run of nothing else, sent again


def test_handles_of_an_earlier_stay_are_lost(session: Any) -> None:
    session.run(Run(), [])
    with pytest.raises(errors.ArrayLost, match="daemon exited"):
        session.run(Run(), [], generation=session.generation - 1)


def test_values_that_fail_alike_have_the_failure_each(daemon: str) -> None:
    array = jitclient.device_put(np.float32(3))
    here, spec = array._session, array.spec
    lost = array._handle + 1000
    _, values = here.run(Run(fetch=(lost, array._handle, lost + 1)), [], [spec] * 3, array._generation)
    assert isinstance(values[0], Failure)
    assert values[2] == values[0]
    assert np.asarray(values[1]) == 3


def test_a_capture_beyond_all_measure_is_not_sent(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "MAX_CAPTURE_BYTES", 10)
    asked: list[Verb] = []
    monkeypatch.setattr(session, "ask_once", lambda verb, *rest: asked.append(verb))
    lookup = Lookup(
        "0" * 32, "0" * 32, (), Signature(tree=b"", leaves=(), statics=(), donated=(), options=(), context=())
    )
    with pytest.raises(errors.CaptureError, match="Pass large arrays as arguments"):
        programs.make(session, Prepare(lookup, "f", ""), bytes(11), lambda index: index)
    assert not asked


def test_it_closes_even_while_another_thread_is_in_a_call(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    monkeypatch.setattr(client_session, "_GOODBYE_SECONDS", 0.05)
    held, done = threading.Event(), threading.Event()

    def call() -> None:
        with session:
            held.set()
            done.wait()

    thread = threading.Thread(target=call)
    thread.start()
    held.wait()
    session.close()
    done.set()
    thread.join()


def test_a_goodbye_ends_it_on_the_daemon(daemon: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def begun() -> set[float]:
        """When each session began: another one may end at any time."""
        found: Snapshot = ask(Settings(address=daemon), Verb.SNAPSHOT, None, Snapshot)
        return {each.begun for each in found.sessions}

    monkeypatch.setattr(client_session, "_GOODBYE_SECONDS", 60.0)
    before = begun()
    session = client_session.Session(Settings(address=daemon, autostart=False))
    session.run(Run(), [])
    [own] = begun() - before
    session.close()
    assert own not in begun()


def test_sessions_that_nothing_uses_end(daemon: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_process, "current", None)
    made: list[Callable[[], Any]] = []
    for _ in range(5):
        made.append(weakref.ref(jitclient.connect(daemon)))
        assert float(jitclient.jit(lambda x: x + 1)(np.float32(1))) == 2
    deadline = time.monotonic() + 30  # a thread that sent what was queued may hold one for a moment
    while [ref() for ref in made[:-1]] != [None] * 4:
        assert time.monotonic() < deadline, "they are still there"
        gc.collect()
    made[-1]().close()


def test_a_session_that_nothing_uses_closes_its_socket(daemon: str) -> None:
    session = client_session.Session(Settings(address=daemon, autostart=False))
    session.run(Run(), [])
    seen = weakref.ref(session)
    del session
    gc.collect()  # a ResourceWarning fails the test
    assert seen() is None


def test_arrays_move_between_sessions_by_value(daemon: str) -> None:
    before = client_process.current
    try:
        jitclient.connect(daemon)
        moved = jitclient.device_put(np.arange(5, dtype=np.float32))
        jitclient.connect(daemon)
        assert np.asarray(jitclient.jit(lambda x: x + 1)(moved)).tolist() == [1, 2, 3, 4, 5]
    finally:
        for session in (moved._session, client_process.session()):
            session.close()
        client_process.current = before
