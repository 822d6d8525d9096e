"""Sessions in checkpoints: what is restored, what is lost, and the reasons."""

import logging
import os
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jitclient.capture.codec import values
from jitclient.errors import DaemonLost
from jitserver.daemon.checkpoint import manifests
from jitserver.daemon.checkpoint.store import ArrayStore
from jitserver.daemon.sessions.session import DaemonSession
from jitserver.programs.devices import device_arrays
from jitserver.programs.exceptions import Failed, failure_of
from jitserver.system.process_watch import Process

from .conftest import Daemon


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the written arrays, in order."""
    lengths, real = [], ArrayStore.write

    def write(store: ArrayStore, array: Any, deadline: float) -> Any:
        lengths.append(len(array))
        return real(store, array, deadline)

    monkeypatch.setattr(ArrayStore, "write", write)
    return lengths


@pytest.fixture
def client() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def test_arrays_are_restored_under_their_handles_and_the_files_removed(daemon: Daemon) -> None:
    session = daemon.begin({7: jnp.arange(5), 1 << 41: jnp.full((200, 300), 2.5)})
    following = daemon.restart()
    back = following.back(session)
    assert np.array_equal(back.array(7), np.arange(5))
    assert np.array_equal(back.array(1 << 41), np.full((200, 300), 2.5, np.float32))
    assert following.is_empty()


def test_other_users_cannot_read_the_files(daemon: Daemon, root: Path) -> None:
    daemon.begin({1: jnp.arange(5)})
    daemon.leave()
    paths = [root, *root.rglob("*")]
    assert [path.stat().st_mode & 0o077 for path in paths] == [0] * 5


def test_an_array_under_several_handles_is_written_and_held_once(daemon: Daemon) -> None:
    shared = jnp.arange(100_000)
    session = daemon.begin({1: shared, 2: shared, 3: shared})
    following = daemon.restart()
    [path] = following.files("arrays")
    assert path.stat().st_size == shared.nbytes
    back = following.back(session)
    assert back.arrays[1] is back.arrays[2] is back.arrays[3]


def test_equal_arrays_stay_two(daemon: Daemon) -> None:
    session = daemon.begin({1: jnp.zeros(5), 2: jnp.zeros(5)})
    back = daemon.restart().back(session)
    back.array(1).delete()
    assert back.array(2).tolist() == [0] * 5


def test_failures_and_donated_arrays_raise_the_same_as_before(daemon: Daemon) -> None:
    donated = jnp.arange(3)
    donated.delete()
    failed = Failed(failure_of(ZeroDivisionError("by nothing")))
    session = daemon.begin({1: failed, 2: failed, 3: donated})
    back = daemon.restart().back(session)
    for handle, words in ((1, "by nothing"), (2, "by nothing"), (3, "has been deleted with shape=int32[3]")):
        with pytest.raises(Failed) as caught:
            back.array(handle)
        assert words in caught.value.failure.text


def test_handles_runs_and_programs_continue(daemon: Daemon) -> None:
    session, first = daemon.sessions.begin(os.getpid())
    order, connection = session.order(b"client"), object()
    order.take_over(connection)
    assert order.begin(connection, 41)
    session.freeze()
    assert not order.begin(connection, 42)
    session.order(b"late").take_over(connection)
    assert not session.order(b"late").begin(connection, 1), "it is too late for others too"
    following = daemon.restart()
    back = following.back(session)
    assert back.order(b"client").take_over(connection) == (41, None)
    assert back.order(b"client").begin(connection, 42)
    resumed = following.sessions.resume(session.token, os.getpid())
    assert resumed is not None
    assert resumed[1] > first


class Made:
    """Stands for the entry of a program."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.holders: set[Any] = set()


def test_a_program_is_restored_when_it_is_called(daemon: Daemon) -> None:
    session = daemon.begin({})
    numbers = [session.lease(Made(key)) for key in ("one", "other")]  # type: ignore[arg-type]
    daemon.leave()
    asked = []

    def entry_of(key: str) -> Any:
        asked.append(key)
        if key == "other":
            return None
        return Made("one, by newer versions")

    [back] = Daemon(daemon.root, entry_of).sessions.all()
    assert asked == []
    entry = back.executable(numbers[0])
    assert entry.key == "one, by newer versions"
    assert back.executable(numbers[0]) is entry
    with pytest.raises(DaemonLost, match="not in its cache"):
        back.executable(numbers[1])
    assert asked == ["one", "other"]
    with pytest.raises(IndexError):
        back.executable(2)


def test_each_array_is_freed_once_it_is_written(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    held = [jnp.zeros(size) for size in (30, 10, 20)]
    alive = [weakref.ref(array) for array in held]
    daemon.begin(dict(enumerate(held[:2])))
    daemon.keep("data", held[2:])
    del held
    seen, real = [], ArrayStore.write

    def write(store: ArrayStore, array: Any, deadline: float) -> Any:
        seen.append((len(array), sum(ref() is not None for ref in alive)))
        return real(store, array, deadline)

    monkeypatch.setattr(ArrayStore, "write", write)
    daemon.leave()
    assert seen == [(10, 3), (20, 2), (30, 1)]


# ---- lack of room and time


def test_an_array_that_is_still_computed_delays_no_other(
    daemon: Daemon, written: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.begin({1: jnp.zeros(30), 2: jnp.zeros(10)})
    daemon.keep("data", [jnp.zeros(20), jax.random.split(jax.random.key(1), 2)])
    real: Any = device_arrays.is_ready
    monkeypatch.setattr(device_arrays, "is_ready", lambda array: len(array) != 10 and real(array))
    daemon.leave()
    assert written == [2, 20, 30, 10]


def test_an_array_that_cannot_be_asked_whether_it_is_ready_is_saved_last(
    daemon: Daemon, written: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    session, real = daemon.begin({1: jnp.zeros(2), 2: jnp.zeros(3), 3: jnp.zeros(4)}), device_arrays.is_ready

    def is_ready(array: Any) -> bool:
        if len(array) == 3:
            raise RuntimeError("random_device could not be read")
        return real(array)

    with monkeypatch.context() as patched:
        patched.setattr(device_arrays, "is_ready", is_ready)
        following = daemon.restart()
    assert written == [2, 4, 3]
    back = following.back(session)
    assert [len(back.array(handle)) for handle in (1, 2, 3)] == [2, 3, 4]


def test_an_array_that_there_is_no_time_for_fails_with_the_reason(daemon: Daemon) -> None:
    session = daemon.begin({1: jnp.arange(3)})
    following = daemon.restart(time.monotonic() - 1)
    says(following.back(session), 1, "no time left")


def test_the_smallest_arrays_are_written_first(daemon: Daemon, full_after: Callable[[int], None]) -> None:
    one, other = daemon.begin({1: jnp.zeros(10_000), 2: jnp.arange(7)}), daemon.begin({1: jnp.zeros(3_000)})
    full_after(20_000)
    following = daemon.restart()
    assert following.back(other).array(1).shape == (3_000,)
    assert np.array_equal(following.back(one).array(2), np.arange(7))
    says(following.back(one), 1, "could not write this array to the disk", "No space left")


def test_the_largest_array_is_removed_to_make_room_for_manifests(
    daemon: Daemon, full_after: Callable[[int], None]
) -> None:
    session = daemon.begin({1: jnp.zeros(10_000), 2: jnp.int8(3)})
    daemon.keep("large", [jnp.zeros(20_000)])
    daemon.keep("small", [jnp.zeros(2)])
    full_after(4 * 30_000 + 30)  # the arrays fit, but not the manifests
    following = daemon.restart()
    back = following.back(session)
    assert back.array(2) == 3
    assert back.array(1).shape == (10_000,)
    assert following.names() == ["small"]


def test_a_name_whose_array_was_removed_for_room_is_lost(daemon: Daemon, full_after: Callable[[int], None]) -> None:
    session = daemon.begin(dict.fromkeys(range(5000), jnp.int8(3)))
    daemon.keep("large", [jnp.zeros(20_000)])
    full_after(4 * 20_000 + 2000)  # the manifest of the name fits, that of the session does not
    following = daemon.restart()
    assert following.names() == []
    assert "No space left" in following.lost()["large"]
    assert following.back(session).array(4999) == 3


def test_if_nothing_can_be_written_all_is_lost_with_a_warning(
    daemon: Daemon, full_after: Callable[[int], None], caplog: pytest.LogCaptureFixture
) -> None:
    session = daemon.begin({1: jnp.zeros(10_000)})
    full_after(10)
    following = daemon.restart()
    assert following.resume(session.token) is None
    assert "cannot save 1 sessions or named trees ([Errno 28]" in caplog.text
    assert following.is_empty()


def test_a_folder_that_was_deleted_is_made_again(daemon: Daemon, root: Path) -> None:
    session = daemon.begin({1: jnp.arange(3)})
    for path in (root / "arrays", root / "manifests", root):
        path.rmdir()
    assert daemon.restart().back(session).array(1).tolist() == [0, 1, 2]


def test_if_the_folder_cannot_be_made_all_is_lost_with_a_warning(
    daemon: Daemon, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    daemon.begin({1: jnp.zeros(3)})
    (root / "arrays").rmdir()
    (root / "arrays").write_text("in the way")
    daemon.leave()
    assert "checkpoint: cannot be written" in caplog.text


def says(session: DaemonSession, handle: int, *words: str) -> None:
    with pytest.raises(Failed) as caught:
        session.array(handle)
    failure = caught.value.failure
    assert values.name_of(failure.types[0]) == "ArrayLost"
    for word in words:
        assert word in failure.text


# ---- damage


@pytest.mark.parametrize("size", [0, 5, 100, -1])
def test_a_session_whose_manifest_is_truncated_is_lost_with_one_warning_and_a_reason(
    daemon: Daemon, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    session = daemon.begin({1: jnp.arange(100)})
    daemon.leave()
    [path] = daemon.files("manifests")
    path.write_bytes(path.read_bytes()[:size])
    following = Daemon(daemon.root)
    assert following.resume(session.token) is None
    assert "damaged" in following.sessions.lost[session.token]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert following.is_empty()


def test_every_flipped_bit_is_detected(daemon: Daemon) -> None:
    session = daemon.begin({1: jnp.arange(4), 2: jnp.arange(4, 8)})
    daemon.leave()
    before = {path: path.read_bytes() for folder in ("arrays", "manifests") for path in daemon.files(folder)}
    for broken, whole in before.items():
        for position in range(len(whole)):
            for path, data in before.items():
                path.write_bytes(data)
            flipped = bytearray(whole)
            flipped[position] ^= 0x10
            broken.write_bytes(flipped)
            following = Daemon(daemon.root)
            back = following.resume(session.token)
            if broken.parent.name == "manifests":
                assert back is None
                assert session.token in following.sessions.lost
                continue
            assert back is not None
            [hit] = [handle for handle in (1, 2) if type(back.arrays[handle]) is Failed]
            says(back, hit, "wrong checksum")


def test_only_the_array_whose_file_is_missing_is_lost(daemon: Daemon) -> None:
    session = daemon.begin({1: jnp.arange(4), 2: jnp.arange(9)})
    following = daemon.restart()
    max(following.files("arrays"), key=lambda path: path.stat().st_size).unlink()
    back = following.back(session)
    says(back, 2, "could not restore this array", "No such file")
    assert back.array(1).shape == (4,)
    assert following.is_empty()


def test_files_of_another_user_are_refused(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    session, uid = daemon.begin({1: jnp.arange(4)}), os.getuid()
    daemon.leave()
    monkeypatch.setattr(manifests, "private_directory", lambda path: path)  # which already refuses it
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    following = Daemon(daemon.root)
    assert "belongs to another user" in following.sessions.lost[session.token]


# ---- clients that died or said goodbye


def test_a_session_whose_client_died_meanwhile_is_not_restored(daemon: Daemon, client: subprocess.Popen[bytes]) -> None:
    daemon.begin({1: jnp.arange(4)}, client.pid)
    daemon.leave()
    client.kill()
    client.wait()
    following = Daemon(daemon.root)
    assert (following.sessions.all(), following.sessions.lost) == ([], {})
    assert following.is_empty()


def test_a_restored_session_ends_when_its_client_dies(daemon: Daemon, client: subprocess.Popen[bytes]) -> None:
    daemon.begin({1: jnp.arange(4)}, client.pid)
    following = daemon.restart()
    following.sessions.end_orphans()
    assert len(following.sessions.all()) == len(following.files("arrays")) == 1
    client.kill()
    client.wait()
    following.sessions.end_orphans()
    assert following.sessions.all() == []
    assert following.is_empty()


def test_a_session_waits_for_a_forked_child_whose_parent_died(daemon: Daemon, client: subprocess.Popen[bytes]) -> None:
    parent = subprocess.Popen([sys.executable, "-S", "-c", "pass"])
    session = daemon.begin({}, parent.pid)
    assert daemon.sessions.resume(session.token, client.pid) is not None
    parent.wait()
    session.freeze()
    daemon.sessions.leave(session, client.pid)  # as for all connections before a save
    assert daemon.sessions.all() == [session]
    following = daemon.restart()
    following.sessions.end_orphans()
    assert len(following.sessions.all()) == 1
    assert following.sessions.resume(session.token, client.pid) is not None
    following.sessions.end_orphans()
    assert len(following.sessions.all()) == 1


def test_a_session_whose_client_said_goodbye_waits_for_the_child_only(
    daemon: Daemon, client: subprocess.Popen[bytes]
) -> None:
    session = daemon.begin({})
    assert daemon.sessions.resume(session.token, client.pid) is not None
    daemon.sessions.goodbye(session)
    following = daemon.restart()
    following.sessions.end_orphans()
    assert len(following.sessions.all()) == 1
    client.kill()
    client.wait()
    following.sessions.end_orphans()
    assert following.sessions.all() == []


def test_a_session_waits_for_a_client_that_cannot_be_watched_as_after_a_lost_connection(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    for where in ("jitserver.daemon.sessions.presence", "jitserver.system.process_watch"):
        monkeypatch.setattr(f"{where}.process_with_id", lambda pid: Process(pid, ""))
    monkeypatch.setattr("jitserver.system.process_watch._pidfd_of", lambda pid: None)
    daemon.begin({})
    daemon.leave()
    for seconds, left in ((60.0, 1), (-1.0, 0)):
        monkeypatch.setattr("jitserver.daemon.sessions.presence.LINGER_SECONDS", seconds)
        following = Daemon(daemon.root)
        following.sessions.end_orphans()
        assert len(following.sessions.all()) == left


def test_a_session_that_was_not_resumed_stays_on_the_disk_for_another_daemon(daemon: Daemon) -> None:
    session = daemon.begin({1: jnp.arange(4)})
    between = daemon.restart()
    before = between.files("arrays")
    following = between.restart()
    assert following.files("arrays") == before, "it was not written once more"
    assert following.back(session).array(1).shape == (4,)


def test_a_stopped_daemon_saves_no_sessions(daemon: Daemon) -> None:
    daemon.begin({1: jnp.arange(4)})
    following = daemon.restart()
    following.sessions.end_all()
    assert following.is_empty()


def test_each_address_has_its_own_private_folder() -> None:
    one, other = Daemon(manifests.directory_of("unix:/one.sock")), Daemon(manifests.directory_of("unix:/other.sock"))
    assert one.root != other.root
    assert one.root.stat().st_mode & 0o077 == 0
    shared = jnp.arange(3)
    one.begin({1: shared, 2: jnp.arange(4)})
    one.keep("stays", [shared])
    other.begin({1: shared})
    one.leave()
    other.leave()
    manifests.forget_sessions("unix:/one.sock")
    assert [len(daemon.files("arrays")) for daemon in (one, other)] == [1, 1]
    assert [path.name[:4] for path in one.files("manifests")] == ["name"]
    manifests.forget_sessions("unix:/other.sock")
    assert other.is_empty()
    one.kept.forget("stays")
