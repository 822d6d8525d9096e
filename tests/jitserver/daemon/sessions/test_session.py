"""Sessions: which clients may resume them, when they end, and what is freed."""

import errno
import gc
import os
import subprocess
import sys
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from jitclient.errors import ProgramLost
from jitserver.daemon.arrays.budget import ArrayBudget
from jitserver.daemon.sessions import presence
from jitserver.daemon.sessions.registry import Sessions
from jitserver.daemon.sessions.session import DaemonSession
from jitserver.store.entry import Entry, KeyComponents

from ....descriptors import open_descriptors


@pytest.fixture
def client() -> Iterator[subprocess.Popen[bytes]]:
    """A process that lives until it is killed."""
    process = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def test_a_client_that_reconnects_in_time_finds_its_arrays(client: subprocess.Popen[bytes]) -> None:
    sessions = Sessions()
    session, first = sessions.begin(client.pid)
    session.arrays[first] = "array"
    sessions.leave(session, client.pid)
    sessions.end_orphans()
    resumed = sessions.resume(session.token, client.pid)
    assert resumed is not None
    again, second = resumed
    assert again is session
    assert second > first  # its own handles
    assert session.array(first) == "array"


def test_a_dead_clients_session_ends_at_once(client: subprocess.Popen[bytes]) -> None:
    sessions = Sessions()
    session, first = sessions.begin(client.pid)
    session.arrays[first] = "array"
    client.kill()
    client.wait()
    sessions.leave(session, client.pid)
    assert sessions.all() == []
    assert not session.arrays
    assert sessions.resume(session.token, client.pid) is None


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Tells sessions the time."""
    made = Clock()
    monkeypatch.setattr(presence, "monotonic", made)
    return made


def test_the_session_of_a_client_that_does_not_reconnect_ends(clock: Clock) -> None:
    sessions = Sessions()
    session, _ = sessions.begin(os.getpid())
    sessions.leave(session, os.getpid())
    clock.now += 61
    sessions.end_orphans()
    assert sessions.resume(session.token, os.getpid()) is None
    assert "not connected for 61 s, longer than the daemon waits" in sessions.lost[session.token]


def test_the_session_of_a_client_that_dies_after_its_connection_ends_before_that(
    clock: Clock, client: subprocess.Popen[bytes]
) -> None:
    sessions = Sessions()
    session, _ = sessions.begin(client.pid)
    sessions.leave(session, client.pid)
    clock.now += 1
    client.kill()
    client.wait()
    sessions.end_orphans()
    assert (sessions.all(), sessions.lost) == ([], {})
    assert session.ended


def test_as_many_losses_are_remembered_as_clients_may_ask_about(clock: Clock) -> None:
    sessions = Sessions()
    lost = [missed(sessions).token for _ in range(1001)]
    clock.now += 1e6
    sessions.end_orphans()
    assert list(sessions.lost) == lost[1:]


def missed(sessions: Sessions, handles: int = 1) -> DaemonSession:
    """A session with arrays, of a client on another machine whose link has broken now."""
    session, first = sessions.begin(0)
    session.keep(first, ["array"] * handles)
    sessions.leave(session, 0)
    return session


def test_a_client_on_another_machine_that_slept_for_hours_finds_its_arrays(clock: Clock) -> None:
    sessions = Sessions()
    session = missed(sessions)
    clock.now += 23 * 3600
    sessions.end_orphans()
    assert sessions.resume(session.token, 0) is not None
    clock.now += 1e6
    sessions.end_orphans()
    assert sessions.all() == [session]


def test_a_client_that_comes_too_late_is_told_why_its_arrays_are_lost(clock: Clock) -> None:
    sessions = Sessions()
    session = missed(sessions)
    clock.now += 25 * 3600
    sessions.end_orphans()
    assert sessions.resume(session.token, 0) is None
    assert "not connected for 25.0 h, longer than the daemon waits" in sessions.lost[session.token]
    assert "jitclient.keep" in sessions.lost[session.token]


def test_memory_that_is_needed_is_taken_from_the_client_that_is_away_longest(clock: Clock) -> None:
    sessions = Sessions()
    here, _ = sessions.begin(0)
    here.keep(1, ["array"])
    longest = missed(sessions)
    clock.now += 60
    saved = missed(sessions, handles=0)  # its arrays are on the disk
    long = missed(sessions)
    clock.now += 500
    assert not sessions.end_longest_absent(), "their networks may come back"
    clock.now += 60
    assert sessions.end_longest_absent()
    assert sessions.all() == [here, saved, long]
    assert "and other programs needed the memory" in sessions.lost[longest.token]
    assert sessions.resume(longest.token, 0) is None
    assert not sessions.end_longest_absent()
    clock.now += 60
    assert sessions.end_longest_absent()
    assert sessions.all() == [here, saved]
    assert not sessions.end_longest_absent()


def test_of_too_many_absent_clients_those_leave_first_that_would_miss_nothing(clock: Clock) -> None:
    sessions = Sessions()
    here, _ = sessions.begin(0)
    longest, long = missed(sessions), missed(sessions)
    clock.now += 60
    empty, last = missed(sessions, handles=0), missed(sessions, handles=0)
    clock.now += 60
    sessions.limit_absent(4)
    assert sessions.all() == [here, longest, long, empty, last]
    sessions.limit_absent(3)
    assert sessions.all() == [here, longest, long, last]
    sessions.limit_absent(1)
    assert sessions.all() == [here, long]
    assert "and too many other programs were not connected either" in sessions.lost[longest.token]
    assert sessions.resume(long.token, 0) is not None
    sessions.limit_absent(0)
    assert sessions.all() == [here, long], "a client that is back is not absent"


def test_a_goodbye_ends_the_session_once_no_process_is_connected(client: subprocess.Popen[bytes]) -> None:
    sessions = Sessions()
    session, _ = sessions.begin(os.getpid())
    assert sessions.resume(session.token, client.pid) is not None  # a forked child
    sessions.goodbye(session)
    sessions.leave(session, os.getpid())
    assert sessions.all() == [session]
    sessions.leave(session, client.pid)
    assert sessions.all() == []


def test_the_end_of_a_child_does_not_end_the_session(client: subprocess.Popen[bytes]) -> None:
    sessions = Sessions()
    session, _ = sessions.begin(os.getpid())
    sessions.leave(session, os.getpid())  # the parent lost its connection
    assert sessions.resume(session.token, client.pid) is not None
    client.kill()
    client.wait()
    sessions.leave(session, client.pid)
    sessions.end_orphans()
    assert sessions.resume(session.token, os.getpid()) is not None
    assert sessions.all() == [session]


def test_orphans_end_while_connected_unless_others_are_connected(client: subprocess.Popen[bytes]) -> None:
    sessions = Sessions()
    orphan, _ = sessions.begin(client.pid)
    shared, _ = sessions.begin(client.pid)
    assert sessions.resume(shared.token, os.getpid()) is not None
    sessions.end_orphans()
    assert len(sessions.all()) == 2
    client.kill()
    client.wait()
    sessions.end_orphans()
    assert sessions.all() == [shared]
    assert orphan.ended


def test_a_dead_clients_session_ends_even_if_it_began_without_descriptors(
    client: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(pid: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    sessions = Sessions()
    with monkeypatch.context() as patch:
        patch.setattr(os, "pidfd_open", short)
        zombie, _ = sessions.begin(client.pid)
        gone, _ = sessions.begin(client.pid)
        client.kill()
        os.waitid(os.P_PID, client.pid, os.WEXITED | os.WNOWAIT)
        sessions.end_orphans()
        assert len(sessions.all()) == 2, "nothing can be known"
    sessions.leave(zombie, client.pid)
    assert sessions.all() == [gone]
    client.wait()
    sessions.leave(gone, client.pid)
    assert sessions.all() == []


def entry(key: str) -> Any:
    return Entry(SimpleNamespace(key=key), SimpleNamespace(), KeyComponents({}))  # type: ignore[arg-type]


def test_a_program_is_let_go_once_each_of_its_leases_is_released() -> None:
    session = Sessions().begin(os.getpid())[0]
    shared, other = entry("shared"), entry("other")
    numbers = [session.lease(each) for each in (shared, shared, other)]
    assert numbers == [0, 0, 1]
    session.release([0])
    assert session.executable(0) is shared
    session.release([0, 0, 5, -1])
    assert (shared.holders, other.holders) == (set(), {session})
    with pytest.raises(ProgramLost, match="Call it again"):
        session.executable(0)
    assert session.executable(1) is other
    assert session.lease(shared) == 2
    assert session.executable(2) is shared


def test_what_made_an_array_is_known_until_a_restart_or_a_release() -> None:
    session, maker = Sessions().begin(os.getpid())[0], entry("maker")
    maker.info.label, maker.info.where = "step(f32[8])", "train.py:12"
    session.keep(1, [object()])
    session.keep(2, [object(), object()], session.lease(maker))
    assert [session.maker_of(handle) for handle in (1, 2, 3)] == [
        ("put by the program", ""),
        ("step(f32[8])", "train.py:12"),
        ("step(f32[8])", "train.py:12"),
    ]
    session.forget([2])
    assert session.makers.keys() == {3}
    state, arrays = session.hand_over()
    saved: Any = SimpleNamespace(load=lambda: arrays, discard=lambda: None)
    after = DaemonSession.restored(state, saved, lambda key: maker, ArrayBudget())
    after.load()
    after.keep(9, [object()], 0)
    after.executable(0)
    assert after.maker_of(1) == after.maker_of(3) == ("a program of before", "")
    assert after.maker_of(9) == ("step(f32[8])", "train.py:12")
    after.release([0])
    assert after.maker_of(9) == ("a program of before", "")
    after.end()
    assert not after.makers


def test_a_session_that_is_over_holds_no_program() -> None:
    session, held = Sessions().begin(os.getpid())[0], entry("held")
    session.lease(held)
    alive = weakref.ref(held)
    session.end()
    gc.disable()
    try:
        del held
        assert alive() is None
    finally:
        gc.enable()


def test_sessions_leave_no_descriptors() -> None:
    sessions = Sessions()
    before = open_descriptors()
    for _ in range(10):
        session, _ = sessions.begin(os.getpid())
        sessions.end(session)
        sessions.end(session)
    assert open_descriptors() <= before


def test_a_run_that_ends_after_its_session_was_handed_over_changes_no_array_of_the_next_daemon() -> None:
    session = Sessions().begin(os.getpid())[0]
    given_up: list[dict[int, Any]] = []

    def results() -> Iterator[object]:
        yield object()
        given_up.append(session.hand_over()[1])
        yield object()

    session.keep(1, results())
    assert [*given_up[0]] == [1]


def test_an_array_has_a_maker_or_none_while_its_session_ends() -> None:
    session, maker = Sessions().begin(os.getpid())[0], entry("maker")
    maker.info.label, maker.info.where = "step(f32[8])", "train.py:12"

    class Ending(dict[int, int]):
        def get(self, handle: int, default: Any = None) -> Any:
            found = super().get(handle, default)
            session.end()
            return found

    session.makers = Ending()
    session.keep(2, [object()], session.lease(maker))
    assert session.maker_of(2) == ("step(f32[8])", "train.py:12")
