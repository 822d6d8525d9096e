"""Handles that a client drops over a new connection while the daemon still executes a Run of the old one."""

import os
import subprocess
import threading
from collections.abc import Iterator

import pytest

from jitclient.errors import ArrayLost
from jitserver.daemon.arrays.budget import ArrayBudget
from jitserver.daemon.sessions.session import DaemonSession


class OldRun:
    """A Run that began on a connection that has broken since; another connection has taken over."""

    def __init__(self) -> None:
        self.session = DaemonSession(0, ArrayBudget())
        self.order = self.session.order(b"client")
        self.old, self.new = self.session.attach(0) or 0, 0
        self.order.take_over("old")
        self._begun, self._may_end = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run)

    def begin(self) -> None:
        self._thread.start()
        assert self._begun.wait(60)
        self.new = self.session.attach(0) or 0
        self.order.take_over("new")

    def _run(self) -> None:
        assert self.order.begin("old", 1)
        self._begun.set()
        assert self._may_end.wait(60)
        self.session.keep(self.old + 1, ["made late"])
        self.order.active.end("old")
        self.session.free_pending_drops()

    def end(self) -> None:
        self._may_end.set()
        if self._thread.ident is not None:
            self._thread.join(60)
            assert not self._thread.is_alive()

    def drop(self, *handles: int) -> None:
        """A Run of the new connection that only drops these handles."""
        assert self.order.begin("new", 2)
        self.session.forget(handles)
        self.order.active.end("new")
        self.session.free_pending_drops()


@pytest.fixture
def run() -> Iterator[OldRun]:
    made = OldRun()
    yield made
    made.end()


def test_arrays_that_the_old_run_may_read_stay_until_it_ends(run: OldRun) -> None:
    run.session.keep(run.old, ["argument"])
    run.begin()
    run.drop(run.old)
    assert run.session.array(run.old) == "argument"
    run.end()
    assert run.old not in run.session.arrays


def test_arrays_that_the_old_run_makes_too_late_are_freed_when_it_ends(run: OldRun) -> None:
    run.begin()
    run.drop(run.old + 1)
    run.end()
    assert run.session.arrays == {}


def test_arrays_of_the_new_connection_are_freed_at_once(run: OldRun) -> None:
    run.begin()
    run.session.keep(run.new, ["of the new one"])
    run.drop(run.new)
    assert run.session.arrays == {}


def test_without_a_running_run_arrays_are_freed_at_once(run: OldRun) -> None:
    run.session.keep(run.old, ["argument"])
    run.begin()
    run.end()
    run.drop(run.old, run.old + 1)
    assert run.session.arrays == {}


def test_reading_an_array_that_the_old_run_makes_waits_for_it(run: OldRun) -> None:
    run.begin()
    seen: list[object] = []
    looking = threading.Thread(target=lambda: seen.append(run.session.array(run.old + 1)))
    looking.start()
    looking.join(0.05)
    assert seen == []
    run.end()
    looking.join(60)
    assert seen == ["made late"]


def test_dropped_arrays_are_not_handed_over(run: OldRun) -> None:
    run.session.keep(run.old, ["argument"])
    run.begin()
    run.drop(run.old)
    run.session.freeze()
    assert run.session.hand_over()[1] == {}


def test_the_old_connection_begins_no_more_runs(run: OldRun) -> None:
    run.begin()
    assert not run.order.begin("old", 2)
    run.end()
    with pytest.raises(ArrayLost):
        run.session.array(run.old + 2)


def test_clients_that_have_exited_leave_nothing() -> None:
    session, running = DaemonSession(os.getpid(), ArrayBudget()), subprocess.Popen(["sleep", "infinity"])
    try:
        for number in range(100):
            exited = subprocess.Popen(["true"])
            exited.wait()
            order = session.order(b"%d" % number, exited.pid)
            order.take_over("connection")
            assert order.begin("connection", 1)
            order.active.end("connection")
            order.leave("connection")
        for client, pid in ((b"other", running.pid), (b"remote", 0), (b"connected", exited.pid)):
            order = session.order(client, pid)
            order.take_over("connection")
            assert order.begin("connection", 7)
            order.active.end("connection")
        session.order(b"other").leave("connection")
        session.order(b"remote").leave("connection")
        session.order(b"last")
        assert session._orders.keys() == {b"other", b"remote", b"connected", b"last"}
        assert session.order(b"other").take_over("again") == (7, None), "it may send again what it has not sent"
        assert not session.active.running, "each Run looks at these alone"
    finally:
        running.kill()
        running.wait()


def test_two_old_runs_of_one_session_do_not_wait_for_each_other() -> None:
    session = DaemonSession(0, ArrayBudget())
    begun, ended = threading.Barrier(3), []

    def run(client: bytes) -> None:
        order = session.order(client)
        order.take_over(client)
        assert order.begin(client, 1)
        begun.wait(60)
        begun.wait(60)  # until both have reconnected
        session.active.settle()  # as before a call with donation
        ended.append(client)
        order.active.end(client)

    threads = [threading.Thread(target=run, args=(client,), daemon=True) for client in (b"parent", b"child")]
    for thread in threads:
        thread.start()
    begun.wait(60)
    for client in (b"parent", b"child"):
        session.order(client).take_over("new")
    begun.wait(60)
    for thread in threads:
        thread.join(60)
    assert sorted(ended) == [b"child", b"parent"]
