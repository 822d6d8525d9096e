"""Signals to a daemon: for its log, its state and its end."""

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

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
        assert process.pid in json.loads(state)[1]
        assert own.counts()["pid"] == process.pid, "it still serves"
