"""Sessions: which clients may resume them, when they end, and what is freed."""

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from jitserver.sessions import presence
from jitserver.sessions.registry import Sessions


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
    leaving = threading.Thread(target=sessions.leave, args=(session, client.pid))
    leaving.start()
    resumed = sessions.resume(session.token, client.pid)
    assert resumed is not None
    leaving.join(10)
    assert not leaving.is_alive()
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


def test_the_session_of_a_client_that_does_not_reconnect_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "LINGER_SECONDS", 0.01)
    sessions = Sessions()
    session, _ = sessions.begin(os.getpid())
    sessions.leave(session, os.getpid())
    assert sessions.resume(session.token, os.getpid()) is None


def test_the_session_of_a_client_on_another_machine_waits_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "LINGER_SECONDS", 0.0)
    sessions = Sessions()
    session, _ = sessions.begin(0)
    waiting = threading.Thread(target=sessions.leave, args=(session, 0))
    waiting.start()
    assert sessions.resume(session.token, 0) is not None
    waiting.join()
    sessions.end_orphans()
    assert sessions.all() == [session]
    monkeypatch.setattr(presence, "LINGER_REMOTELY_SECONDS", 0.01)
    sessions.leave(session, 0)
    assert sessions.all() == []


def test_a_goodbye_ends_the_session_once_no_process_is_connected(client: subprocess.Popen[bytes]) -> None:
    sessions = Sessions()
    session, _ = sessions.begin(os.getpid())
    assert sessions.resume(session.token, client.pid) is not None  # a forked child
    sessions.part(session)
    sessions.leave(session, os.getpid())
    assert sessions.all() == [session]
    sessions.leave(session, client.pid)
    assert sessions.all() == []


def test_the_end_of_a_child_does_not_end_the_session(client: subprocess.Popen[bytes]) -> None:
    sessions = Sessions()
    session, _ = sessions.begin(os.getpid())
    waiting = [threading.Thread(target=sessions.leave, args=(session, os.getpid()))]
    waiting[0].start()  # the parent lost its connection
    assert sessions.resume(session.token, client.pid) is not None
    waiting[0].join(10)
    client.kill()
    client.wait()
    waiting.append(threading.Thread(target=sessions.leave, args=(session, client.pid)))
    waiting[1].start()
    assert sessions.resume(session.token, os.getpid()) is not None
    waiting[1].join(10)
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


def test_sessions_leave_no_descriptors() -> None:
    sessions = Sessions()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        session, _ = sessions.begin(os.getpid())
        sessions.end(session)
        sessions.end(session)
    assert len(os.listdir("/proc/self/fd")) == before
