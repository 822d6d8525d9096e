"""Folders, sockets, locks, the log and the cache: owners, permissions, and stale or damaged files."""

import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from jitclient.wire.address import Address, runtime_folder
from jitclient.wire.messages import Status
from jitserver.cache.catalog import CATALOG, Catalog
from jitserver.cache.store import QUARANTINE
from jitserver.doctor import files
from jitserver.doctor.finding import DaemonState

RUNS = Status(**dict.fromkeys(Status.__struct_fields__, 0))


@pytest.fixture
def state(short_path: Path) -> DaemonState:
    return DaemonState(Address(short_path / "d.sock"))


@pytest.fixture
def listener(state: DaemonState) -> Iterator[socket.socket]:
    with state.address.listen() as sock:
        yield sock


def running(state: DaemonState) -> DaemonState:
    return DaemonState(state.address, RUNS)


def test_a_folder_that_others_can_write_is_a_problem(state: DaemonState) -> None:
    folder = state.address.path.parent
    assert files.folder_of_sockets(state).level == "ok"
    folder.chmod(0o777)
    found = files.folder_of_sockets(state)
    assert (found.level, found.do) == ("problem", f"chmod 700 {folder}")
    folder.chmod(0o1777)
    assert files.folder_of_sockets(state).level == "ok", "as in /tmp, users cannot remove each other's files"


def test_a_folder_that_does_not_exist_yet_is_ok(state: DaemonState) -> None:
    elsewhere = DaemonState(Address(state.address.path.parent / "later" / "d.sock"))
    assert files.folder_of_sockets(elsewhere).level == "ok"


def test_a_socket_that_others_can_use_is_a_problem(state: DaemonState, listener: socket.socket) -> None:
    assert files.socket(running(state)).level == "ok"
    state.address.path.chmod(0o660)
    found = files.socket(running(state))
    assert found.level == "problem"
    assert "others can use it" in found.says


def test_a_stale_socket_is_a_warning_and_one_with_a_listener_is_not(
    state: DaemonState, listener: socket.socket
) -> None:
    assert files.socket(state).level == "ok", "it may be systemd's"
    listener.close()
    found = files.socket(state)
    assert (found.level, "died" in found.says) == ("warning", True)
    state.address.path.unlink()
    assert files.socket(state).level == "ok"


def test_a_file_in_place_of_the_socket_is_a_problem(state: DaemonState) -> None:
    state.address.path.write_text("")
    assert files.socket(state).level == "problem"


def test_a_lock_whose_holder_does_not_answer_is_a_problem(state: DaemonState) -> None:
    assert files.lock(state).level == "ok"
    state.address.lock_path.write_text("4711\n")
    assert files.lock(state).level == "ok", "not held"
    with open(state.address.lock_path) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        found = files.lock(state)
        assert found.level == "problem"
        assert "4711" in found.says
        assert "kill 4711" in found.do
        assert files.lock(running(state)).level == "ok"


def test_stale_sockets_are_a_warning(state: DaemonState) -> None:
    heard, left = runtime_folder() / "heard.sock", runtime_folder() / "left.sock"
    with Address(heard).listen() as sock:
        Address(left).listen().close()
        try:
            found = files.left_behind(state)
            assert (found.level, found.do) == ("warning", f"rm {left}")
            left.unlink()
            assert files.left_behind(state).level == "ok"
            sock.close()
            assert str(heard) in files.left_behind(state).do
        finally:
            left.unlink(missing_ok=True)
            heard.unlink()


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anything")
def test_a_log_that_cannot_be_written_is_a_problem(state: DaemonState) -> None:
    path = files.launch.log_path(state.address)
    path.write_text("")
    path.chmod(0o400)
    assert files.log(state).level == "problem"


def test_the_log_is_shown(state: DaemonState) -> None:
    path = files.launch.log_path(state.address)
    assert "none yet" in files.log(state).says
    path.write_text("x" * 2048)
    assert (files.log(state).level, files.log(state).says) == ("ok", f"{path}: yours, 2 KiB")


NOWHERE = DaemonState(Address(Path("/nowhere/d.sock")))


@pytest.fixture
def part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(files, "parts_there", lambda: [tmp_path])
    tmp_path.chmod(0o700)
    return tmp_path


def levels() -> dict[str, str]:
    return {found.check: found.level for found in files.cache(NOWHERE)}


def test_a_cache_to_come_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "parts_there", list)
    assert levels() == {"cache": "ok"}


def test_a_cache_that_can_be_read_is_well(part: Path) -> None:
    assert levels() == {"cache": "ok", "catalog": "ok"}
    Catalog(part / CATALOG).close()
    assert levels() == {"cache": "ok", "catalog": "ok"}


def test_others_may_not_write_what_is_loaded(part: Path) -> None:
    part.chmod(0o770)
    assert levels()["cache"] == "problem"


def test_a_catalog_that_is_none_and_what_was_set_aside_are_told(part: Path) -> None:
    (part / CATALOG).write_bytes(b"no catalog at all" * 100)
    (part / QUARANTINE).mkdir()
    (part / QUARANTINE / "damaged").write_text("x")
    assert levels() == {"cache": "ok", "catalog": "warning", "set aside": "warning"}
    [found] = [found for found in files.cache(NOWHERE) if found.check == "set aside"]
    assert found.says.startswith("1 files")
