"""Calls that do not wait: right order, right answers, errors on the right handles, and a bounded number under way."""

import gc
import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitclient
from jitclient import errors
from jitclient.arrays.array import make_handles
from jitclient.session import process
from jitclient.session.pipeline import Pipeline
from jitclient.wire.connection import ClientConnection
from jitclient.wire.messages import RUN, Call, Run
from jitclient.wire.reply import Reply

pytestmark = pytest.mark.usefixtures("daemon", "on_the_daemon")

X = np.arange(300, dtype=np.float32)


@jitclient.jit
def step(x: Any) -> Any:
    return x * 0.5 + 1


@jitclient.jit
def halves(x: Any) -> Any:
    return {"low": x[:2], "high": x[-2:], "all": x}


def sent_runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many calls each Run has that is sent from now on."""
    import msgspec

    counts: list[int] = []
    forward = ClientConnection.send_frame

    def send_frame(self: Any, kind: int, body: bytes, attachments: Any = ()) -> None:
        if kind == RUN:
            counts.append(len(msgspec.msgpack.decode(body, type=Run).calls))
        forward(self, kind, body, attachments)

    monkeypatch.setattr(ClientConnection, "send_frame", send_frame)
    return counts


def test_a_long_chain_gives_what_jax_gives() -> None:
    x, expected = jitclient.device_put(X), jnp.asarray(X)
    plain = jax.jit(step.__wrapped__)
    for _ in range(2500):
        x, expected = step(x), plain(expected)
    assert np.asarray(x).tobytes() == np.asarray(expected).tobytes()


def test_a_call_and_a_look_at_its_result_are_one_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    x = step(jitclient.device_put(X))
    for _ in range(2):
        x = step(x)
        np.asarray(x)
    with process.session():  # held, so that the background does not send it first
        runs = sent_runs(monkeypatch)
        for _ in range(3):
            np.asarray(step(x))
    assert runs == [1, 1, 1]


def test_calls_without_looks_travel_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    x = step(jitclient.device_put(X))
    np.asarray(x)
    with process.session():
        runs = sent_runs(monkeypatch)
        for _ in range(200):
            x = step(x)
        np.asarray(x)
    assert sum(runs) == 200
    assert len(runs) < 100


def test_what_nobody_waits_for_is_sent_all_the_same(until: Any, counts: Callable[..., dict[str, Any]]) -> None:
    x = step(jitclient.device_put(X))
    before = counts()["calls"]
    y = step(x)
    until(lambda: counts()["calls"] > before, "the call to be made")
    until(y.is_ready, "the result to be ready")


def test_small_results_of_one_call_are_fetch_together(monkeypatch: pytest.MonkeyPatch) -> None:
    x = step(jitclient.device_put(X))
    found = halves(x)
    with process.session():
        runs = sent_runs(monkeypatch)
        assert [np.asarray(found[name]).shape for name in ("low", "high", "all")] == [(2,), (2,), (300,)]
    assert len(runs) == 1


def test_a_result_of_one_call_goes_into_the_next_and_is_dropped(until: Any, counts: Any) -> None:
    gc.collect()
    before = counts()["arrays"]
    x = jitclient.device_put(X)
    for _ in range(100):
        x = step(x)
    np.asarray(x)
    until(lambda: counts()["arrays"] <= before + 1, "the dropped arrays to be freed")


def test_a_handle_dropped_while_its_call_is_queued_serves_that_call() -> None:
    x = step(jitclient.device_put(X))
    with process.session():
        y = step(x)
        del x
        assert np.asarray(y)[0] == 1.5


def test_donation_keeps_its_order() -> None:
    update = jitclient.jit(lambda x, y: x + y, donate_argnums=0)
    x, y = jitclient.device_put(X), jitclient.device_put(np.ones_like(X))
    for _ in range(200):
        old, x = x, update(x, y)
        assert old.is_deleted()
    with pytest.raises(RuntimeError, match="deleted"):
        np.asarray(old)
    assert np.asarray(x).tolist() == (X + 200).tolist()


def test_what_failed_fails_what_is_made_of_it_and_nothing_else() -> None:
    x = step(jitclient.device_put(X))
    session = process.session()
    with session:
        [lost] = make_handles(session, session.new_handles(1), [x.spec])  # no call makes it
        bad = step(lost)
        worse = step(bad)
        good = step(x)
        assert np.asarray(good)[0] == 1.5
        for array in (worse, bad):
            with pytest.raises(errors.ArrayLost, match="holds no array"):
                np.asarray(array)
        with pytest.raises(errors.ArrayLost, match="holds no array"):
            worse.block_until_ready()
    assert np.asarray(step(good))[0] == 1.75


@pytest.mark.callbacks
def test_what_raises_in_a_callback_raises_at_the_call() -> None:
    def refuse(x: Any) -> Any:
        raise ValueError("not this one")

    call = jitclient.jit(lambda x: jax.pure_callback(refuse, jax.ShapeDtypeStruct((300,), "float32"), x))
    x = step(jitclient.device_put(X))
    with pytest.raises(jax.errors.JaxRuntimeError, match="not this one"):
        call(x)


def test_threads_share_the_pipeline() -> None:
    wrong: list[int] = []

    def work(n: int) -> None:
        x = jitclient.device_put(np.full(10, n, np.float32))
        add = jitclient.jit(lambda x: x + 1)
        for _ in range(100):
            x = add(x)
        if np.asarray(x)[0] != n + 100:
            wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# ---- broken connections


@pytest.mark.parametrize("when", ["before it is sent", "after it was sent", "before its values are read"])
def test_a_look_is_repeated_where_the_connection_breaks_and_no_call_is_made_twice(
    when: str, monkeypatch: pytest.MonkeyPatch, counts: Callable[..., dict[str, Any]]
) -> None:
    update = jitclient.jit(lambda x: x + 1, donate_argnums=0)
    x = update(update(jitclient.device_put(X)))
    for _ in range(2):  # looks at each result, so that the next call goes with the look
        x = update(x)
        np.asarray(x)
    before = counts()["calls"]
    frames = {"send_frame": ClientConnection.send_frame, "reply": ClientConnection.reply}
    step_that_breaks = "reply" if when == "before its values are read" else "send_frame"
    failing = iter([True])

    def breaks(self: Any, *rest: Any) -> Any:
        fails = next(failing, False)
        answer = None if fails and when == "before it is sent" else frames[step_that_breaks](self, *rest)
        if fails:
            raise errors.DaemonLost("the connection broke")
        return answer

    with process.session():
        y = update(x)
        monkeypatch.setattr(ClientConnection, step_that_breaks, breaks)
        assert np.asarray(y).tolist() == (X + 5).tolist()
    assert next(failing, False) is False
    assert counts()["calls"] == before + 1


@pytest.mark.parametrize("when", ["before it is sent", "after it was sent"])
def test_a_put_is_repeated_where_the_connection_breaks_and_leaves_nothing_behind(
    when: str, monkeypatch: pytest.MonkeyPatch, counts: Callable[..., dict[str, Any]], until: Any
) -> None:
    np.asarray(jitclient.device_put(X))
    gc.collect()
    before = counts()["arrays"]
    forward = ClientConnection.send_frame
    failing = iter([True])

    def send_frame(self: Any, kind: int, body: bytes, attachments: Any = ()) -> None:
        fails = kind == RUN and next(failing, False)
        if not fails or when == "after it was sent":
            forward(self, kind, body, attachments)
        if fails:
            raise errors.DaemonLost("the connection broke")

    large = np.arange(100_000, dtype=np.float32)
    with process.session():
        monkeypatch.setattr(ClientConnection, "send_frame", send_frame)
        small, put = jitclient.device_put([X, large])
    assert next(failing, False) is False
    assert np.array_equal(np.asarray(put), large)
    assert np.array_equal(np.asarray(small), X)
    until(lambda: counts()["arrays"] <= before + 2, "the dropped arrays to be freed")


class Peer:
    """A daemon's end that gives the answers of the test."""

    def __init__(self) -> None:
        import msgspec

        self.runs: list[Run] = []
        self.attachments: list[Any] = []
        self.answered = 0
        self._decode = msgspec.msgpack.Decoder(Run).decode

    def send_frame(self, kind: int, body: bytes, attachments: Any = ()) -> None:
        self.runs.append(self._decode(body))
        self.attachments += attachments

    def reply_if_ready(self) -> Reply | None:
        return None

    def reply(self) -> Reply:
        assert self.answered < len(self.runs), "this would wait for ever"
        self.answered += 1
        return Reply(self.runs[self.answered - 1].number)


def test_there_is_a_window() -> None:
    pipeline, peer = Pipeline(), Peer()
    most = 0
    for n in range(10_000):
        if pipeline.outbox.add(Call(0, [n], n + 1)):
            pipeline.advance(peer)  # type: ignore[arg-type]
        most = max(most, len(peer.runs) - peer.answered)
    pipeline.drain(peer)  # type: ignore[arg-type]
    assert [call.results for run in peer.runs for call in run.calls] == list(range(1, 10_001))
    assert 1 < most <= 64


@pytest.mark.parametrize("breaks", [1, 2])
def test_what_came_with_bytes_is_sent_again_with_those_that_it_was_called_with(breaks: int) -> None:
    pipeline, peer = Pipeline(), Peer()
    value = np.arange(5)
    pipeline.outbox.add(Call(0, [1], 1, (100,)))
    pipeline.flush(peer, [value])  # type: ignore[arg-type]
    value[:] = 0
    for _ in range(breaks):
        again = Peer()
        assert pipeline.outbox.resume(0) == []
        pipeline.resend(again)  # type: ignore[arg-type]
        assert [call.drop for run in again.runs for call in run.calls] == [(100,)]
        assert [np.asarray(array).tolist() for array in again.attachments] == [[0, 1, 2, 3, 4]]


def test_bytes_that_could_not_be_sent_are_sent_again_and_not_taken_for_those_of_the_next_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    add = jitclient.jit(lambda x, y: x + y)
    x, large = jitclient.device_put(np.ones((200, 200), np.float32)), np.full((200, 200), 2, np.float32)
    assert np.asarray(add(x, large))[0, 0] == 3

    def fails(*_: Any) -> None:
        raise errors.DaemonLost("no memory can be had")

    with process.session() as session:
        blocks = session._pipeline.blocks
        assert blocks is not None
        monkeypatch.setattr(type(blocks), "load", fails)
        late = add(x, large)
        monkeypatch.undo()
    large[:] = 7
    assert np.asarray(add(x, large))[0, 0] == 8
    assert np.asarray(late)[0, 0] == 3
