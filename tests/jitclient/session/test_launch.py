"""Environment and options of a daemon that a client starts."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jitclient.core.settings import Settings
from jitclient.errors import DaemonUnavailable
from jitclient.session import handshake, launch
from jitclient.wire.address import Address

from ...descriptors import open_descriptors


def test_folders_of_installed_packages_are_handed_on_and_the_users_own_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed, own, unpacked = tmp_path / "site-packages", tmp_path / "src", tmp_path / "unpacked"
    (unpacked / "thing-1.0.dist-info").mkdir(parents=True)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, ["", own, installed, unpacked])))
    assert launch.daemon_environment()["PYTHONPATH"] == os.pathsep.join(map(str, [installed, unpacked]))
    sources = tmp_path / "sources"
    (sources / "jitserver").mkdir(parents=True)
    (sources / "jitserver" / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", f"{own}{os.pathsep}{sources}")  # of a checkout
    assert launch.daemon_environment()["PYTHONPATH"] == str(sources)
    monkeypatch.setenv("PYTHONPATH", str(own))
    assert "PYTHONPATH" not in launch.daemon_environment()


def test_where_there_can_be_no_daemon_its_client_says_so_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    chosen = Settings(address=f"unix:{tmp_path}/d.sock", autostart=True)
    with pytest.raises(DaemonUnavailable, match="the daemon needs Linux: name another machine"):
        handshake.dial(chosen, 1.0)
    assert not list(tmp_path.iterdir())


def test_the_logs_of_two_addresses_of_one_name_differ() -> None:
    one, other = (launch.log_path(Address(Path(folder) / "d.sock")) for folder in ("/a", "/b"))
    assert one != other
    assert one.parent == other.parent


def test_a_child_is_waited_for_once() -> None:
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 3"], {})
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert launch._reap(pid) == "status 3"
    assert launch._reap(pid) == "status unknown"


def test_whoever_starts_a_daemon_and_stops_does_not_hang_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "START_SECONDS", 0.1)
    with open(tmp_path / "d.start", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(DaemonUnavailable, match=r"d\.start"):
            launch.start(Address(tmp_path / "d.sock"))


def test_who_may_start_none_waits_for_whoever_brings_one_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = Address(tmp_path / "d.sock")
    assert not launch.wait_for_other_start(address)
    with open(tmp_path / "d.start", "a") as lock:
        assert not launch.wait_for_other_start(address)
        fcntl.flock(lock, fcntl.LOCK_EX)
        monkeypatch.setattr("jitclient.core.polling.sleep", lambda _: fcntl.flock(lock, fcntl.LOCK_UN))
        assert launch.wait_for_other_start(address)
        fcntl.flock(lock, fcntl.LOCK_EX)
        monkeypatch.undo()
        monkeypatch.setattr(launch, "START_SECONDS", 0.1)
        with pytest.raises(DaemonUnavailable, match=r"d\.start"):
            launch.wait_for_other_start(address)


def test_a_start_that_ends_between_two_looks_is_not_missed(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = Address(short_path / "d.sock")
    listening: list[Any] = []
    monkeypatch.setattr(launch, "wait_for_other_start", lambda address: listening.append(address.listen()))
    sock, reached, started = handshake.dial(Settings(address=str(address), autostart=False), patience=5.0)
    assert (reached, started) == (address, None)
    for each in (sock, *listening):
        each.close()


BECOMES = """
import os, sys
from pathlib import Path
from typing import Any
from jitclient.session import handshake, launch
from jitclient.core.settings import Settings
from jitclient.wire.address import Address
if len(sys.argv) == 2:
    launch.hold_start_lock(Address(Path(sys.argv[1])))
    os.execv(sys.executable, [sys.executable, __file__, *sys.argv[1:], "again"])
print("kept", flush=True)
input()
launch.release_start_lock()
print("let", flush=True)
input()
"""


def test_a_daemon_that_becomes_another_program_is_waited_for_until_that_serves(tmp_path: Path) -> None:
    address = Address(tmp_path / "d.sock")
    (tmp_path / "becomes.py").write_text(BECOMES)
    command = [sys.executable, str(tmp_path / "becomes.py"), str(address.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "kept\n"
        with open(tmp_path / "d.start", "a") as lock:
            with pytest.raises(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "let\n"
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        process.communicate("\n")


def test_a_client_that_looks_whether_one_comes_up_keeps_no_daemon_from_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(tmp_path / "d.start", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        monkeypatch.setattr("jitclient.core.polling.sleep", lambda _: fcntl.flock(lock, fcntl.LOCK_UN))
        launch.hold_start_lock(Address(tmp_path / "d.sock"))
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        launch.release_start_lock()
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)


def test_where_another_brings_one_up_nothing_is_kept(tmp_path: Path) -> None:
    before = open_descriptors()
    with open(tmp_path / "d.start", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        launch.hold_start_lock(Address(tmp_path / "d.sock"))
    assert "JITSERVER_START_LOCK" not in os.environ
    assert open_descriptors() <= before
    launch.release_start_lock()
