"""`jitserver doctor`: output and exit status."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CHECKS = {"versions", "settings", "cache", "imports", "daemon"}
OF_A_DAEMON = {"devices", "executables", "call"}


@pytest.fixture
def nowhere(short_path: Path) -> dict[str, str]:
    return {"JITSERVER_ADDRESS": f"unix:{short_path}/d.sock"}


def by_check(done: Any) -> dict[str, dict[str, str]]:
    return {found["check"]: found for found in json.loads(done.stdout)["checks"]}


def test_without_problems_the_status_is_0(daemon: str, cli: Callable[..., Any]) -> None:
    done = cli("doctor", "--json")
    assert done.returncode == 0, done.stdout
    assert json.loads(done.stdout)["running"] is True
    found = by_check(done)
    assert found.keys() == CHECKS | OF_A_DAEMON
    for check in OF_A_DAEMON | {"versions", "daemon"}:
        assert found[check]["level"] == "ok", found[check]
    assert daemon in found["daemon"]["says"]
    text = cli("doctor").stdout
    assert all(check in text for check in CHECKS | OF_A_DAEMON)


def test_without_a_daemon_the_status_is_3_and_none_is_started(
    cli: Callable[..., Any], nowhere: dict[str, str], short_path: Path
) -> None:
    done = cli("doctor", "--json", env={**nowhere, "JITSERVER_AUTOSTART": "1"})
    assert done.returncode == 3
    assert json.loads(done.stdout)["running"] is False
    found = by_check(done)
    assert found.keys() == CHECKS
    assert found["daemon"]["level"] == "warning"
    assert "jitserver start" in found["daemon"]["do"]
    assert list(short_path.iterdir()) == []


@pytest.mark.parametrize("setting", [{"JITSERVER_ADDRESS": "http://x"}, {"JITSERVER_FALLBACK": "perhaps"}])
def test_a_bad_setting_is_a_problem(setting: dict[str, str], cli: Callable[..., Any]) -> None:
    done = cli("doctor", "--json", env=setting)
    assert done.returncode == 1
    assert next(iter(setting.values())) in by_check(done)["settings"]["says"]


@pytest.mark.slow
def test_start_starts_a_daemon(cli: Callable[..., Any], nowhere: dict[str, str]) -> None:
    pid = None
    try:
        done = cli("doctor", "--start", "--json", env=nowhere)
        assert done.returncode == 0, done.stdout
        assert by_check(done)["call"]["level"] == "ok"
        pid = json.loads(cli("status", "--json", env=nowhere).stdout)["pid"]
        assert json.loads(cli("stop", "--json", env=nowhere).stdout)["pid"] == pid
        pid = None
    finally:
        if pid is not None:
            os.kill(pid, signal.SIGKILL)


def test_a_daemon_that_cannot_be_started_is_a_problem(cli: Callable[..., Any], nowhere: dict[str, str]) -> None:
    done = cli("doctor", "--start", "--json", env={**nowhere, "JAX_PLATFORMS": "nonsense"})
    assert done.returncode == 1
    found = by_check(done)["daemon"]
    assert found["level"] == "problem"
    assert "nonsense" in found["says"]
