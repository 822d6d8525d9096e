"""Signals to a daemon: for its log, its state and its end."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jitclient.wire.labels import seconds
from jitserver.store.strikes import Strikes

pytestmark = pytest.mark.slow


def log_of(process: Any) -> Path:
    return Path(os.readlink(f"/proc/{process.pid}/fd/2"))


def test_sighup_reopens_the_log_and_sigusr1_writes_the_state_and_all_stacks_there(own: Any, until: Any) -> None:
    with own.serving() as process:
        path = log_of(process)
        path.rename(path.with_suffix(".moved"))
        process.send_signal(signal.SIGHUP)
        until(lambda: path.exists() and "reopened the log" in path.read_text(), "the log to be reopened")
        process.send_signal(signal.SIGUSR1)
        until(lambda: "state: " in path.read_text(), "the state")
        text = path.read_text()
        assert len(re.findall(r"^(?:Current t|T)hread 0x", text, re.MULTILINE)) > 3
        assert "daemon.py" in text
        [state] = re.findall(r"state: (\[.*\])", text)
        assert process.pid in json.loads(state)[0]
        assert own.counts()["pid"] == process.pid, "it still serves"


WAITS_FOR_EVER = """
    @jitclient.jit
    def endless(x):
        from jitclient.session import process
        if process.inside_daemon:
            import threading
            threading.Event().wait()
        return x + 1

    print("ready")
    try:
        print(float(endless(np.float32(1))))
    except errors.DaemonError as error:
        print(type(error).__name__)
"""


@pytest.mark.parametrize("is_stopping", [False, True])
def test_stop_says_what_it_waits_for_and_stop_now_waits_for_nothing(
    serve: Any, start_client: Any, client_of: Any, works: Any, cli: Any, until: Any, is_stopping: bool
) -> None:
    cache = os.environ["JITSERVER_CACHE_DIR"]
    with serve("--drain", "3000", JITSERVER_CACHE_DIR=cache) as daemon:
        env = {"JITSERVER_ADDRESS": daemon.address}
        with client_of(daemon.address):
            works()
        client = start_client(daemon, WAITS_FOR_EVER)
        client.says("ready")
        until(lambda: "tracing" in daemon.phases(), "the trace to be under way")
        if is_stopping:
            command = [sys.executable, "-P", "-m", "jitserver", "stop"]
            with subprocess.Popen(command, env={**os.environ, **env}, stderr=subprocess.PIPE, text=True) as stop:
                assert stop.stderr is not None
                line = stop.stderr.readline()
                assert "tracing endless(f32[]) for " in line
                assert f"at most {seconds(3000)}. `jitserver stop --now` does not wait." in line
                until(lambda: not daemon.path.exists(), "the daemon to accept no connections")
                done = cli("stop", "--now", "--json", env=env)
                assert stop.wait(60) == 0
        else:
            done = cli("stop", "--now", "--json", env=env)
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout)["pid"] == daemon.process.pid
        assert daemon.process.wait(60) in (0, -signal.SIGALRM)
        client.says("DaemonUnavailable")
    with serve(JITSERVER_CACHE_DIR=cache) as daemon, client_of(daemon.address):
        works()
        counts = daemon.counts()
        assert counts.restores > 0, "the store is consistent"
    [part] = (each for each in Path(cache).iterdir() if each.name != "daemons")
    assert Strikes(part).all() == {}
