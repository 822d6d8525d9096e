"""Sessions on their way from one daemon to the next: what comes with them, what stays away, and why."""

import logging
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jitclient.codec import values
from jitclient.errors import ArrayLost, DaemonLost
from jitclient.wire.messages import Spec
from jitserver import kept_files, leaving, spill
from jitserver.alive import Process
from jitserver.engine import spilling
from jitserver.engine.failures import failure_of
from jitserver.kept import Kept, KeptTree
from jitserver.session import Failed, Session
from jitserver.sessions import Sessions

FOREVER = float("inf")


@pytest.fixture
def where(tmp_path: Path) -> Path:
    folder = tmp_path / "left"
    folder.mkdir()
    return folder


@pytest.fixture
def client() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def session_with(arrays: dict[int, Any], pid: int = 0) -> Session:
    session, _ = Sessions().begin(pid or os.getpid())
    session.arrays |= arrays
    session.freeze()
    return session


def passed_on(where: Path, session: Session, deadline: float = FOREVER) -> tuple[Sessions, Session | None]:
    """All sessions of the next daemon; and that one, if its client was given it back."""
    spill.save(where, session, deadline, {})
    following = Sessions()
    following.take_back(*spill.taken_back(where, lambda key: None, Kept()))
    back = following.resume(session.token, os.getpid())
    return following, back and back[0]


def came_back(where: Path, session: Session, deadline: float = FOREVER) -> Session:
    _, back = passed_on(where, session, deadline)
    assert back is not None
    return back


def files(where: Path) -> list[str]:
    return [path.name for path in where.iterdir()]


def test_arrays_come_back_under_their_handles_and_the_file_goes(where: Path) -> None:
    back = came_back(where, session_with({7: jnp.arange(5), 1 << 41: jnp.full((200, 300), 2.5)}))
    assert np.array_equal(back.array(7), np.arange(5))
    assert np.array_equal(back.array(1 << 41), np.full((200, 300), 2.5, np.float32))
    assert files(where) == []


def test_the_file_can_be_read_by_nobody_else(where: Path) -> None:
    spill.save(where, session_with({1: jnp.arange(5)}), FOREVER, {})
    [path] = where.iterdir()
    assert path.stat().st_mode & 0o077 == 0


def test_what_several_handles_share_is_written_and_held_once(where: Path) -> None:
    shared = jnp.arange(100_000)
    spill.save(where, session_with({1: shared, 2: shared, 3: shared}), FOREVER, {})
    [path] = where.iterdir()
    assert shared.nbytes < path.stat().st_size < 1.5 * shared.nbytes
    sessions, _ = spill.taken_back(where, lambda key: None, Kept())
    sessions[0].load()
    assert sessions[0].arrays[1] is sessions[0].arrays[2] is sessions[0].arrays[3]


def test_failures_and_donated_arrays_say_the_same_as_before(where: Path) -> None:
    donated = jnp.arange(3)
    donated.delete()
    failed = Failed(failure_of(ZeroDivisionError("by nothing")))
    back = came_back(where, session_with({1: failed, 2: failed, 3: donated}))
    for handle, words in ((1, "by nothing"), (2, "by nothing"), (3, "has been deleted with shape=int32[3]")):
        with pytest.raises(Failed) as caught:
            back.array(handle)
        assert words in caught.value.failure.text


def test_handles_runs_and_programs_go_on_where_they_were(where: Path) -> None:
    session, first = Sessions().begin(os.getpid())
    order, connection = session.order(b"client"), object()
    order.take_over(connection)
    assert order.begin(connection, 41)
    session.freeze()
    assert not order.begin(connection, 42)
    session.order(b"late").take_over(connection)
    assert not session.order(b"late").begin(connection, 1), "it is too late for others too"
    following, back = passed_on(where, session)
    assert back is not None
    assert back.order(b"client").take_over(connection) == 41
    assert back.order(b"client").begin(connection, 42)
    resumed = following.resume(session.token, os.getpid())
    assert resumed is not None
    assert resumed[1] > first


class Made:
    """Stands for the entry of a program."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.holders: set[Any] = set()


def test_a_program_is_had_again_when_it_is_called(where: Path) -> None:
    session = session_with({})
    numbers = [session.lease(Made(key), b"here") for key in ("one", "other")]  # type: ignore[arg-type]
    spill.save(where, session, FOREVER, {})
    asked = []

    def entry_of(key: str) -> Any:
        asked.append(key)
        if key == "other":
            return None
        return Made("one, by newer versions")

    [back], _ = spill.taken_back(where, entry_of, Kept())
    assert asked == []
    entry = back.executable(numbers[0])
    assert entry.key == "one, by newer versions"
    assert back.executable(numbers[0]) is entry
    assert back.locations(numbers[0]) == b"here"
    with pytest.raises(DaemonLost, match="not in its cache"):
        back.executable(numbers[1])
    assert asked == ["one", "other"]
    with pytest.raises(IndexError):
        back.executable(2)


# ---- what is left out


def test_what_there_is_no_time_for_is_lost_and_says_so(where: Path) -> None:
    back = came_back(where, session_with({1: jnp.arange(3)}), time.monotonic() - 1)
    says(back, 1, "no time left")


def test_the_smallest_come_first_where_room_is_short(where: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full_after(monkeypatch, 20_000)
    back = came_back(where, session_with({1: jnp.zeros(10_000), 2: jnp.arange(7), 3: jnp.zeros(3_000)}))
    assert np.array_equal(back.array(2), np.arange(7))
    assert back.array(3).shape == (3_000,)
    says(back, 1, "could not write this array to the disk", "No space left")


def test_the_largest_makes_room_for_what_must_be_known(where: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full_after(monkeypatch, 4 * 10_000 + 30)  # the array fits, and little else
    back = came_back(where, session_with({1: jnp.zeros(10_000), 2: jnp.int8(3)}))
    assert back.array(2) == 3
    says(back, 1, "No space left")


def test_where_nothing_can_be_written_the_session_is_lost_and_the_others_are_not(
    where: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    full_after(monkeypatch, 10)
    _, back = passed_on(where, session_with({1: jnp.zeros(10_000)}))
    assert back is None
    assert "cannot be written" in caplog.text
    assert files(where) == []
    monkeypatch.undo()
    assert came_back(where, session_with({1: jnp.zeros(10)})).array(1).shape == (10,)


def test_a_folder_that_cannot_be_written_loses_sessions_with_a_word(
    where: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spill.save(where / "missing", session_with({1: jnp.zeros(3)}), FOREVER, {})
    assert "a session of 1 arrays is lost: it cannot be written" in caplog.text


def says(session: Session, handle: int, *words: str) -> None:
    with pytest.raises(Failed) as caught:
        session.array(handle)
    failure = caught.value.failure
    assert values.name_of(failure.types[0]) == "ArrayLost"
    for word in words:
        assert word in failure.text


def full_after(monkeypatch: pytest.MonkeyPatch, nbytes: int) -> None:
    """As on a disk with room for so many bytes in each file."""
    write_all = spilling.write_all

    def write(file: Any, data: memoryview) -> None:
        room = nbytes - file.tell()
        write_all(file, data[: max(0, room)])
        if len(data) > room:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(spilling, "write_all", write)


# ---- what is damaged


@pytest.mark.parametrize("size", [0, 5, 100, -1])
def test_a_session_that_was_cut_short_is_lost_with_one_warning_and_a_reason(
    where: Path, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    session = session_with({1: jnp.arange(100)})
    spill.save(where, session, FOREVER, {})
    [path] = where.iterdir()
    path.write_bytes(path.read_bytes()[:size])
    following = Sessions()
    following.take_back(*spill.taken_back(where, lambda key: None, Kept()))
    assert following.resume(session.token, os.getpid()) is None
    assert "damaged" in following.lost[session.token]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert files(where) == []


def test_every_flipped_bit_is_noticed(where: Path) -> None:
    session = session_with({1: jnp.arange(4), 2: jnp.arange(4, 8)})
    spill.save(where, session, FOREVER, {})
    [path] = where.iterdir()
    whole = path.read_bytes()
    for position in range(len(whole)):
        broken = bytearray(whole)
        broken[position] ^= 0x10
        path.write_bytes(broken)
        following = Sessions()
        following.take_back(*spill.taken_back(where, lambda key: None, Kept()))
        resumed = following.resume(session.token, os.getpid())
        if resumed is None:
            assert session.token in following.lost
            continue
        hit = [handle for handle in (1, 2) if type(resumed[0].arrays[handle]) is Failed]
        assert len(hit) == 1
        assert position < 32, "it is not in the arrays"
        says(resumed[0], hit[0], "not those that were written")


def test_a_file_that_vanished_is_a_lost_session_with_a_reason(where: Path) -> None:
    session = session_with({1: jnp.arange(4)})
    spill.save(where, session, FOREVER, {})
    following = Sessions()
    following.take_back(*spill.taken_back(where, lambda key: None, Kept()))
    [path] = where.iterdir()
    path.unlink()
    assert following.resume(session.token, os.getpid()) is None
    assert "cannot read what it left" in following.lost[session.token]
    assert following.all() == []


def test_what_was_never_finished_goes(where: Path) -> None:
    (where / "00ff.new").write_bytes(b"half")
    assert spill.taken_back(where, lambda key: None, Kept()) == ([], {})
    assert files(where) == []


# ---- whose client is where


def test_a_session_whose_client_died_meanwhile_goes_at_once(where: Path, client: subprocess.Popen[bytes]) -> None:
    spill.save(where, session_with({1: jnp.arange(4)}, client.pid), FOREVER, {})
    client.kill()
    client.wait()
    assert spill.taken_back(where, lambda key: None, Kept()) == ([], {})
    assert files(where) == []


def test_one_whose_client_dies_before_it_came_goes_then(where: Path, client: subprocess.Popen[bytes]) -> None:
    spill.save(where, session_with({1: jnp.arange(4)}, client.pid), FOREVER, {})
    following = Sessions()
    following.take_back(*spill.taken_back(where, lambda key: None, Kept()))
    following.end_orphans()
    assert len(following.all()) == len(files(where)) == 1
    client.kill()
    client.wait()
    following.end_orphans()
    assert following.all() == []
    assert files(where) == []


def test_a_forked_child_is_waited_for_when_its_parent_is_dead(where: Path, client: subprocess.Popen[bytes]) -> None:
    parent = subprocess.Popen([sys.executable, "-S", "-c", "pass"])
    sessions = Sessions()
    session, _ = sessions.begin(parent.pid)
    assert sessions.resume(session.token, client.pid) is not None
    parent.wait()
    session.freeze()
    sessions.leave(session, client.pid)  # as all connections do before it is written
    assert sessions.all() == [session]
    spill.save(where, session, FOREVER, {})
    following = Sessions()
    following.take_back(*spill.taken_back(where, lambda key: None, Kept()))
    following.end_orphans()
    assert len(following.all()) == 1
    assert following.resume(session.token, client.pid) is not None
    following.end_orphans()
    assert len(following.all()) == 1


def test_one_whose_client_said_goodbye_waits_for_the_child_only(where: Path, client: subprocess.Popen[bytes]) -> None:
    sessions = Sessions()
    session, _ = sessions.begin(os.getpid())
    assert sessions.resume(session.token, client.pid) is not None
    sessions.part(session)
    session.freeze()
    spill.save(where, session, FOREVER, {})
    following = Sessions()
    following.take_back(*spill.taken_back(where, lambda key: None, Kept()))
    following.end_orphans()
    assert len(following.all()) == 1
    client.kill()
    client.wait()
    following.end_orphans()
    assert following.all() == []


def test_a_client_that_cannot_be_watched_is_waited_for_as_after_a_lost_connection(
    where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jitserver.session.named", lambda pid: Process(0, ""))
    monkeypatch.setattr("jitserver.alive._pidfd_of", lambda pid: None)
    spill.save(where, session_with({}), FOREVER, {})
    for seconds, left in ((60.0, 1), (-1.0, 0)):
        monkeypatch.setattr("jitserver.session.LINGER_SECONDS", seconds)
        following = Sessions()
        following.take_back(*spill.taken_back(where, lambda key: None, Kept()))
        following.end_orphans()
        assert len(following.all()) == left


def test_one_that_nobody_came_for_stays_on_the_disk_for_the_daemon_after_the_next(where: Path) -> None:
    session = session_with({1: jnp.arange(4)})
    spill.save(where, session, FOREVER, {})
    [between], _ = spill.taken_back(where, lambda key: None, Kept())
    between.freeze()
    spill.save(where, between, FOREVER, {})
    following = Sessions()
    following.take_back(*spill.taken_back(where, lambda key: None, Kept()))
    resumed = following.resume(session.token, os.getpid())
    assert resumed is not None
    assert resumed[0].array(1).shape == (4,)


def test_a_daemon_that_is_stopped_leaves_nothing(where: Path) -> None:
    spill.save(where, session_with({1: jnp.arange(4)}), FOREVER, {})
    following = Sessions()
    following.take_back(*spill.taken_back(where, lambda key: None, Kept()))
    following.end_all()
    assert files(where) == []


def test_each_address_has_a_folder_of_its_own_which_is_private() -> None:
    one, other = leaving.folder_of("unix:/one.sock"), leaving.folder_of("unix:/other.sock")
    assert one != other
    assert one.stat().st_mode & 0o077 == 0
    (one / "00").write_bytes(b"")
    (other / "00").write_bytes(b"")
    leaving.forget("unix:/one.sock")
    assert (files(one), files(other)) == ([], ["00"])
    leaving.forget("unix:/other.sock")


def test_the_daemon_before_may_have_been_lost(where: Path) -> None:
    with pytest.raises(ArrayLost, match="cannot read"):
        spill._Away(where / "nothing", spill.Record(session_with({}).leave_behind()[0]), Kept()).load()


class Restart:
    """A daemon that keeps a tree, some of which a session holds too; and those that follow it."""

    def __init__(self, where: Path, kept_where: Path) -> None:
        self.where, self.kept_where = where, kept_where
        x, y = jnp.arange(1000.0), jnp.zeros(3)
        self.kept = Kept()
        self.kept.put("data", KeptTree("key", (Spec((1000,), "float32"), Spec((3,), "float32")), b"", "", [x, y], None))
        self.sessions, self.session = Sessions(), session_with({1: x, 2: jnp.ones(2)})
        self.sessions.by_token[self.session.token] = self.session

    def restart(self, keeps: bool = True) -> None:
        for session in self.sessions.all():
            session.freeze()
        spill.load_what_cannot_stay(self.sessions)
        kept = kept_files.save(self.kept_where, self.kept, math.inf) if keeps else {}
        for session in self.sessions.all():
            spill.save(self.where, session, FOREVER, kept)
        self.kept, self.sessions = Kept(), Sessions()
        self.kept.take_back(kept_files.taken_back(self.kept_where))
        self.sessions.take_back(*spill.taken_back(self.where, lambda key: None, self.kept))

    def come_back(self) -> Session:
        resumed = self.sessions.resume(self.session.token, os.getpid())
        assert resumed is not None
        assert np.array_equal(resumed[0].array(2), np.ones(2))
        return resumed[0]

    def kept_array(self) -> Any:
        tree = self.kept.all()["data"]
        assert self.kept.load("data", tree)
        return tree.arrays[0]


@pytest.fixture
def restart(where: Path, tmp_path: Path) -> Restart:
    folder = tmp_path / "kept"
    folder.mkdir()
    return Restart(where, folder)


@pytest.mark.parametrize("restarts", [1, 2, 3])
def test_what_is_kept_too_is_one_array_afterwards(restart: Restart, restarts: int) -> None:
    for _ in range(restarts):
        restart.restart()
    assert sum(path.stat().st_size for path in restart.where.iterdir()) < 1000
    assert restart.come_back().array(1) is restart.kept_array()
    assert files(restart.where) == files(restart.kept_where) == []
    assert restart.kept.all()["data"].expected == 0


def test_what_is_kept_no_longer_is_still_its_sessions(restart: Restart) -> None:
    restart.restart()
    assert restart.kept.forget("data") is not None
    assert files(restart.kept_where) == []
    restart.restart()  # before its client came for it
    assert restart.kept.all() == {}
    assert np.array_equal(restart.come_back().array(1), np.arange(1000.0))


def test_another_tree_of_that_name_is_not_taken_for_it(restart: Restart) -> None:
    restart.restart()
    restart.kept.put("data", KeptTree("other", (Spec((3,), "float32"),), b"", "", [jnp.zeros(3)], None))
    restart.restart()
    assert np.array_equal(restart.come_back().array(1), np.arange(1000.0))
    assert np.array_equal(restart.kept_array(), np.zeros(3))


def test_what_could_not_be_kept_goes_with_its_session(restart: Restart) -> None:
    restart.restart(keeps=False)
    assert np.array_equal(restart.come_back().array(1), np.arange(1000.0))


def test_a_kept_tree_that_is_damaged_is_lost_to_its_sessions_too(restart: Restart) -> None:
    restart.restart()
    [path] = restart.kept_where.iterdir()
    path.write_bytes(b"x" * 100 + path.read_bytes()[100:])
    with pytest.raises(Failed) as failed:
        restart.come_back().array(1)
    assert "could not have back what was kept as 'data'" in failed.value.failure.text
    assert restart.kept.all() == {}


def test_a_session_that_nobody_comes_for_expects_nothing_any_more(restart: Restart) -> None:
    restart.restart()
    tree = restart.kept.all()["data"]
    assert tree.expected == 1
    restart.sessions.end_all()
    assert tree.expected == 0
    restart.kept.forget("data")
    assert files(restart.kept_where) == []


def test_what_a_session_has_to_read_back_is_kept_on(restart: Restart) -> None:
    other = restart.session.arrays[3] = jnp.arange(7.0)
    restart.kept.put("other", KeptTree("key", (Spec((7,), "float32"),), b"", "", [other], None))
    restart.restart()
    restart.kept.forget("data")
    restart.restart()
    tree = restart.kept.all()["other"]
    assert restart.kept.load("other", tree)
    assert np.array_equal(tree.arrays[0], np.arange(7.0))
    assert restart.come_back().array(3) is tree.arrays[0]


def test_one_that_is_given_up_while_it_is_read_is_not_counted_twice(restart: Restart) -> None:
    restart.restart()
    [session] = restart.sessions.all()
    away, tree = session._away, restart.kept.all()["data"]
    assert away is not None
    restart.sessions.end_all()
    away.discard()
    assert tree.expected == 0
