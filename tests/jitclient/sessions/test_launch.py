"""What a client hands to a daemon that it starts."""

import fcntl
import os
from pathlib import Path

import pytest

from jitclient.errors import DaemonUnavailable
from jitclient.sessions import launch
from jitclient.wire.address import Address


def test_folders_of_installed_packages_are_handed_on_and_the_users_own_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed, own, unpacked = tmp_path / "site-packages", tmp_path / "src", tmp_path / "unpacked"
    (unpacked / "thing-1.0.dist-info").mkdir(parents=True)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, ["", own, installed, unpacked])))
    assert launch.daemon_environment()["PYTHONPATH"] == os.pathsep.join(map(str, [installed, unpacked]))
    monkeypatch.setenv("PYTHONPATH", str(own))
    assert "PYTHONPATH" not in launch.daemon_environment()


def test_the_logs_of_two_addresses_of_one_name_differ() -> None:
    one, other = (launch.log_path(Address(Path(folder) / "d.sock")) for folder in ("/a", "/b"))
    assert one != other
    assert one.parent == other.parent


def test_a_child_is_waited_for_once() -> None:
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 3"], {})
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert launch._has_ended(pid) == "status 3"
    assert launch._has_ended(pid) == "status unknown"


def test_whoever_starts_a_daemon_and_stops_does_not_hang_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "START_SECONDS", 0.1)
    with open(tmp_path / "d.start", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(DaemonUnavailable, match=r"d\.start"):
            launch.start(Address(tmp_path / "d.sock"))
