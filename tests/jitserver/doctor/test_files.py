"""Folders, sockets, locks and logs: whose they are, who may use them, and what was left behind."""

import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from jitclient.wire.address import Address, runtime_folder
from jitclient.wire.messages import Status
from jitserver.doctor import files
from jitserver.doctor.finding import Scene

RUNS = Status(**dict.fromkeys(Status.__struct_fields__, 0))


@pytest.fixture
def scene(short_path: Path) -> Scene:
    return Scene(Address(short_path / "d.sock"))


@pytest.fixture
def listener(scene: Scene) -> Iterator[socket.socket]:
    with scene.address.listen() as sock:
        yield sock


def running(scene: Scene) -> Scene:
    return Scene(scene.address, RUNS)


def test_a_folder_where_others_may_write_is_a_problem(scene: Scene) -> None:
    folder = scene.address.path.parent
    assert files.folder_of_sockets(scene).level == "ok"
    folder.chmod(0o777)
    found = files.folder_of_sockets(scene)
    assert (found.level, found.do) == ("problem", f"chmod 700 {folder}")
    folder.chmod(0o1777)
    assert files.folder_of_sockets(scene).level == "ok", "as in /tmp, nobody can take another's file away"


def test_a_folder_to_come_is_well(scene: Scene) -> None:
    elsewhere = Scene(Address(scene.address.path.parent / "later" / "d.sock"))
    assert files.folder_of_sockets(elsewhere).level == "ok"


def test_a_socket_is_for_its_user_alone(scene: Scene, listener: socket.socket) -> None:
    assert files.socket(running(scene)).level == "ok"
    scene.address.path.chmod(0o660)
    found = files.socket(running(scene))
    assert found.level == "problem"
    assert "others can use it" in found.says


def test_a_socket_that_a_dead_daemon_left_is_told_from_one_where_somebody_listens(
    scene: Scene, listener: socket.socket
) -> None:
    assert files.socket(scene).level == "ok", "it may be systemd's"
    listener.close()
    found = files.socket(scene)
    assert (found.level, "died" in found.says) == ("warning", True)
    scene.address.path.unlink()
    assert files.socket(scene).level == "ok"


def test_a_file_in_the_place_of_a_socket_is_a_problem(scene: Scene) -> None:
    scene.address.path.write_text("")
    assert files.socket(scene).level == "problem"


def test_whoever_holds_the_lock_must_answer(scene: Scene) -> None:
    assert files.lock(scene).level == "ok"
    scene.address.lock_path.write_text("4711\n")
    assert files.lock(scene).level == "ok", "held by nobody"
    with open(scene.address.lock_path) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        found = files.lock(scene)
        assert found.level == "problem"
        assert "4711" in found.says
        assert "kill 4711" in found.do
        assert files.lock(running(scene)).level == "ok"


def test_sockets_where_nobody_listens_are_told(scene: Scene) -> None:
    heard, left = runtime_folder() / "heard.sock", runtime_folder() / "left.sock"
    with Address(heard).listen() as sock:
        Address(left).listen().close()
        try:
            found = files.left_behind(scene)
            assert (found.level, found.do) == ("warning", f"rm {left}")
            left.unlink()
            assert files.left_behind(scene).level == "ok"
            sock.close()
            assert str(heard) in files.left_behind(scene).do
        finally:
            left.unlink(missing_ok=True)
            heard.unlink()


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anything")
def test_a_log_that_cannot_be_written_is_a_problem(scene: Scene) -> None:
    path = files.launch.log_path(scene.address)
    path.write_text("")
    path.chmod(0o400)
    assert files.log(scene).level == "problem"


def test_the_log_is_told(scene: Scene) -> None:
    path = files.launch.log_path(scene.address)
    assert "none yet" in files.log(scene).says
    path.write_text("x" * 2048)
    assert (files.log(scene).level, files.log(scene).says) == ("ok", f"{path}: yours, 2 KiB")
