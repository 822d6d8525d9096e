"""Calls of values alone, where the daemon computes asynchronously: they are queued, and repeated if the daemon dies."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitclient
from jitclient.arrays import repeatable
from jitclient.errors import DaemonDraining
from jitclient.session import process
from jitclient.session.session import Session
from jitclient.wire.connection import ClientConnection
from jitclient.wire.messages import Run
from jitclient.wire.reply import Reply
from jitserver.programs.exceptions import failure_of


@pytest.fixture
def session(daemon: str, monkeypatch: pytest.MonkeyPatch) -> Session:
    """The session of this process with a daemon that counts as asynchronous."""
    found = process.session()
    with found:
        monkeypatch.setattr(found, "finishes_calls", False)
    return found


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one for each answer that this process waits for."""
    waited: list[int] = []
    reply = ClientConnection.reply

    def counted(self: ClientConnection, *arguments: Any) -> Any:
        waited.append(1)
        return reply(self, *arguments)

    monkeypatch.setattr(ClientConnection, "reply", counted)
    return waited


@pytest.mark.parametrize("size", [10, 100_000], ids=["small", "attached"])
@pytest.mark.parametrize("is_asynchronous", [True, False])
def test_calls_of_values_are_waited_for_only_where_that_costs_nothing(
    session: Session, waits: list[int], size: int, is_asynchronous: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "finishes_calls", not is_asynchronous)
    double = jitclient.jit(lambda x: x * 2)
    x = np.zeros(size, np.float32)
    results = [double(x) for _ in range(3)]  # until there is a plan
    # They are kept, since the background thread tells of dropped ones, and the next call waits for that answer too.
    kept = [np.asarray(result) for result in results]
    waits.clear()
    for n in range(5):
        x[:] = n
        results.append(double(x))
    assert len(waits) == (0 if is_asynchronous else 5)
    x[:] = -1
    assert [float(np.asarray(result)[-1]) for result in results[len(kept) :]] == [0, 2, 4, 6, 8]


def test_a_call_and_its_read_are_one_exchange(session: Session, waits: list[int]) -> None:
    double = jitclient.jit(lambda x: x * 2)
    for n in range(5):
        if n == 3:
            waits.clear()
        assert float(double(np.float32(n))) == 2 * n
    assert len(waits) == 2


@pytest.mark.callbacks
def test_calls_that_may_raise_or_call_back_are_waited_for(session: Session) -> None:
    import jax

    seen: list[float] = []

    @jitclient.jit
    def told(x: Any) -> Any:
        jax.debug.callback(lambda value: seen.append(float(value)), x)
        return x

    for n in range(3):
        told(np.float32(n))
        assert len(seen) == n + 1


def test_an_error_of_a_queued_call_is_raised_by_its_results(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    double = jitclient.jit(lambda x: x * 2)
    for _ in range(3):
        double(np.float32(1)).block_until_ready()
    result = double(np.float32(1))
    session.drops.append(result._handle)  # as if its call had failed
    double(np.float32(1)).block_until_ready()
    assert float(result) == 2, "the call was repeated"
    result = double(np.float32(1))
    result._call.forget()
    session.drops.append(result._handle)
    double(np.float32(1)).block_until_ready()
    with pytest.raises(jitclient.ArrayLost):
        float(result)


@pytest.mark.parametrize("is_small", [True, False])
def test_a_call_that_is_made_again_waits_for_a_daemon_that_does_not_end(
    session: Session, monkeypatch: pytest.MonkeyPatch, is_small: bool
) -> None:
    """The first daemon, whose device has failed, still launches a call, and the result then has the failure."""
    double = jitclient.jit(lambda x: x * 2)
    x = np.ones(10 if is_small else 1_000_000, np.float32)
    for _ in range(3):
        double(x).block_until_ready()
    result = double(x)
    session.drops.append(result._handle)  # as if its call had failed
    double(x).block_until_ready()
    failure = failure_of(DaemonDraining("the device has failed"))
    calls: list[Run] = []
    run = Session.run

    def at_a_failed_device(self: Session, message: Run, *arguments: Any, **options: Any) -> Any:
        reply, values = run(self, message, *arguments, **options)
        if message.calls:
            calls.append(message)
        if len(calls) == 1 and message.calls:
            waited = message.wait[:1]
            return Reply(0, [(list(waited), failure)] if waited else []), [failure] * len(values)
        return reply, values

    monkeypatch.setattr(Session, "run", at_a_failed_device)
    assert float(np.asarray(result)[-1]) == 2
    first, *_ = calls
    assert len(first.fetch) + len(first.wait) == 1, "it is answered once its result exists"
    assert len(calls) == 2, "it is made once more after the failure"


def test_the_values_that_are_kept_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeatable, "MAX_BYTES", 100)
    monkeypatch.setattr(repeatable, "_kept", repeatable._Kept())
    made: list[list[float]] = []

    def again(leaves: Any) -> list[Any]:
        made.append([float(leaf.sum()) for leaf in leaves])
        return []

    def call(value: float, count: int = 10) -> repeatable.Repeatable:
        return repeatable.Repeatable(again, [np.full(count, value, np.float32)], [])

    first, second = call(1), call(2)
    third = call(3)
    assert [first.repeat(), second.repeat(), third.repeat()] == [False, True, True]
    assert not second.repeat(), "once"
    assert not call(4, 26).repeat(), "too large"
    for n in range(10):
        del first
        first = call(n)
    fourth = call(0)
    assert first.repeat()
    assert fourth.repeat()
    assert made == [[20], [30], [90], [0]]


DEATH = """
    import functools, json, os, sys
    import numpy as np
    import jitclient, rates
    from jitclient.arrays import repeatable
    from jitclient.session import process

    sys.path.append(os.environ["TESTS"])
    from running_daemon import run_daemon

    factor = 2

    def of_package(is_traced_once):
        def rated(x):
            rates.traces += not is_traced_once  # a side effect must happen in each process
            return rates.rated(x)

        return jitclient.jit(rated)

    same, changing = [[of_package(True), of_package(False)] for _ in range(2)]

    @jitclient.jit
    def scaled(x):
        return x * factor, x.sum()

    @jitclient.jit
    def plus(x, y):
        return x + y

    def attempt(use):
        try:
            return float(use())
        except jitclient.ArrayLost as error:
            return str(error).partition(": ")[2]

    def lost_with(*calls):
        \"""Make calls on a daemon that dies.\"""
        where = os.environ["JITSERVER_ADDRESS"], os.environ["CACHE"]
        with run_daemon(*where) as daemon:
            with process.session() as session:
                session.finishes_calls = False
            for _ in range(3):
                np.asarray(scaled(x)[0]), np.asarray(plus(np.float32(1), np.float32(2)))
            made = [call() for call in calls]
            FINISH
            daemon.process.kill()
            daemon.process.wait()
        return made, run_daemon(*where)

    x = np.ones(SIZE, np.float32)
    resident = lambda: plus(jitclient.device_put(np.float32(1)), np.float32(1))

    def read_one():
        large, total = scaled(x)
        float(total)
        return large

    made, next_daemon = lost_with(
        lambda: scaled(x),
        lambda: scaled(x),
        resident,
        read_one,
        lambda: scaled(x),
        *[functools.partial(call, x) for call in (*same, *changing)],
    )
    (large, total), (other, _), of_resident, half_read, (changed, _), *of_package = made
    x[:] = 7
    with next_daemon:
        found = [
            attempt(lambda: np.asarray(large)[-1]),
            attempt(lambda: total),
            attempt(lambda: plus(other, np.float32(1))[0]),
            attempt(lambda: of_resident),
            attempt(lambda: half_read[0]),
        ]
        found += [attempt(lambda: array[0]) for array in of_package[:2]]
        factor = rates.rate = 3
        found += [attempt(lambda: array[0]) for array in (changed, *of_package[2:])]
        found.append(attempt(lambda: scaled(x)[0][0]))
    print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("size", "is_answered"), [(10, True), (100_000, False), (100_000, True)])
def test_calls_of_values_survive_the_death_of_their_daemon(
    run_script: Callable[..., Any], short_path: Path, size: int, is_answered: bool
) -> None:
    finish = "plus(np.float32(1), np.float32(1)).block_until_ready()" if is_answered else "pass"
    program = DEATH.replace("SIZE", str(size)).replace("FINISH", finish)
    packages = short_path / "site-packages"
    packages.mkdir()
    (packages / "rates.py").write_text("rate, traces = 5, 0\n\ndef rated(x):\n    return x * rate\n")
    where = {"JITSERVER_ADDRESS": f"unix:{short_path}/d.sock", "CACHE": str(short_path / "cache")}
    where["TESTS"] = str(Path(__file__).parents[2])
    found = run_script(program, env={**where, "PYTHONPATH": str(packages)})
    of_large, total, of_other, of_resident, half_read, *of_package, new = found
    assert (of_large, total, of_other) == (2, size, 3)
    assert "the daemon exited" in of_resident
    # Small results are read together.
    assert half_read == 2 if size == 10 else "the daemon exited" in str(half_read)
    assert of_package == [5, 5, *["the function has changed since"] * 3]
    assert new == 21
