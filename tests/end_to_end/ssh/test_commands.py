"""The command line with the address of another machine."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import jitclient
from jitclient.session import process

PROGRAM = """
import numpy as np
import jitclient

@jitclient.jit
def stretched(x):
    return x * 3

jitclient.keep("kept there", jitclient.device_put(np.ones(5, np.float32)))
print(float(stretched(np.float32(2))))
"""


@pytest.fixture(scope="module")
def far(host: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment that finds a machine on which a program has run."""
    import os
    import subprocess
    import sys

    path = tmp_path_factory.mktemp("far") / "program.py"
    path.write_text(PROGRAM)
    done = subprocess.run([sys.executable, str(path)], env={**os.environ, **host.env}, capture_output=True, text=True)
    assert done.stdout == "6.0\n", done.stderr
    return {"PATH": host.env["PATH"], "address": host.address}


def test_each_command_tells_of_the_daemon_there(host: Any, far: dict[str, str], cli: Callable[..., Any]) -> None:
    env = {"PATH": far["PATH"]}

    def told(*words: str) -> Any:
        done = cli(*words, "--address", far["address"], "--json", env=env)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    assert told("status")["address"] == host.socket
    [program] = told("cache", "ls")
    assert program["name"] == "stretched"
    assert told("cache", "show", "stretched")[0]["key"] == program["key"]
    assert told("arrays", "ls")["kept"][0]["name"] == "kept there"
    assert told("status", "--calls")["running"] is True
    assert told("arrays", "rm", "kept there") == ["kept there"]


def test_words_of_any_kind_arrive(far: dict[str, str], cli: Callable[..., Any]) -> None:
    done = cli("arrays", "rm", "it's $HOME; exit 7", "--address", far["address"], env={"PATH": far["PATH"]})
    assert done.returncode == 1
    assert 'no arrays are kept as "it\'s $HOME; exit 7"' in done.stderr


def test_the_address_may_come_from_the_environment(host: Any, cli: Callable[..., Any]) -> None:
    assert json.loads(cli("status", "--json", env=host.env).stdout)["address"] == host.socket


def test_the_doctor_looks_at_both_machines(host: Any, cli: Callable[..., Any]) -> None:
    done = cli("doctor", "--json", env=host.env)
    assert done.returncode == 0, done.stdout
    found = {one["check"]: one for one in json.loads(done.stdout)["checks"]}
    assert host.address in found["daemon"]["says"]
    assert {one["level"] for one in found.values() if one["check"] in ("versions", "daemon", "call")} == {"ok"}
    assert host.socket in found["remote: daemon"]["says"]


def test_the_doctor_says_what_ssh_said(new_host: Any, cli: Callable[..., Any]) -> None:
    with new_host() as far:
        far.stop_listening()
        done = cli("doctor", "--json", env=far.env)
    found = {one["check"]: one for one in json.loads(done.stdout)["checks"]}
    assert done.returncode == 1
    assert "Connection refused" in found["daemon"]["says"]
    assert "Connection refused" in found["remote"]["says"]


def test_the_daemon_there_is_started_and_stopped(new_host: Any, cli: Callable[..., Any]) -> None:
    with new_host() as far:
        started = cli("start", "--json", env=far.env)
        try:
            assert json.loads(started.stdout)["result"] == "started", started.stderr
            assert "serving at" in cli("logs", env=far.env).stdout
        finally:
            stopped = cli("stop", "--json", env=far.env)
        assert json.loads(stopped.stdout)["pid"] == json.loads(started.stdout)["pid"]
        assert cli("status", env=far.env).returncode == 3


@pytest.mark.slow
def test_a_restart_there_keeps_arrays(new_host: Any, cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with new_host() as far:
        assert cli("start", env=far.env).returncode == 0
        before = process.current
        monkeypatch.setenv("PATH", far.env["PATH"])
        session = jitclient.connect(far.address)
        try:
            x = jitclient.device_put(np.arange(3, dtype=np.float32))
            assert cli("restart", env=far.env).returncode == 0
            assert np.asarray(x).tolist() == [0, 1, 2]
        finally:
            session.close()
            process.current = before
            cli("stop", env=far.env)


def test_a_machine_that_does_not_answer(new_host: Any, cli: Callable[..., Any]) -> None:
    with new_host() as far:
        far.stop_listening()
        done = cli("status", "--json", env=far.env)
    assert done.returncode == 3
    assert "Connection refused" in done.stderr
    test = f"ssh -p {far.port} {far.user}@127.0.0.1 {far.folder}/environment/bin/jitserver --version"
    reason = f"the command on the other machine failed (see above). `{test}` must work."
    assert json.loads(done.stdout) == {
        "error": reason,
        "type": "DaemonUnavailable",
        "status": 3,
        "running": False,
        "address": far.address,
    }
