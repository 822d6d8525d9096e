"""`run_daemon`: a daemon that serves while a block runs, and leaves nothing behind."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import jitserver
from jitclient.errors import AddressTaken, DaemonSilent, DaemonUnavailable
from jitclient.wire.address import Address
from jitserver.daemon import embedded

USES = """
    import json, os, sys, tempfile
    FOLDER = sys.argv[1]
    import numpy as np
    import jitclient, jitserver

    tempfile.tempdir = FOLDER
    with jitserver.run_daemon() as daemon:
        jitclient.connect(daemon.address)
        found = jitclient.jit(lambda x: x + 1)(np.arange(2)).tolist()
        begun = daemon.log.read_text().count(f"(pid {daemon.pid})")
    serves_here = "jitserver.daemon.daemon" in sys.modules
    print(json.dumps([found, begun, daemon.process.returncode, os.listdir(FOLDER), serves_here]))
"""


def test_it_serves_and_leaves_nothing_behind(run_script: Callable[..., Any], short_path: Path) -> None:
    assert run_script(USES, str(short_path)) == [[1, 2], 1, 0, [], False]


def test_its_log_says_why_it_does_not_come_up() -> None:
    with (
        pytest.raises(DaemonUnavailable, match=r"status 2\): No such option"),
        jitserver.run_daemon(options=["--nothing-such"]),
    ):
        pytest.fail("it runs")


@pytest.mark.slow
def test_a_daemon_that_serves_there_goes_on(short_path: Path) -> None:
    address = f"unix:{short_path}/d.sock"
    with jitserver.run_daemon(address, short_path / "cache") as first:
        with pytest.raises((AddressTaken, DaemonUnavailable), match="serves at"), jitserver.run_daemon(address):
            pytest.fail("it runs")
        assert first.process.poll() is None
        Address.parse(address).connect().close()
    assert (short_path / "cache").is_dir()


def test_it_ends_with_a_block_that_raises() -> None:
    with pytest.raises(ZeroDivisionError), jitserver.run_daemon() as daemon:
        raise ZeroDivisionError
    assert daemon.process.returncode == 0


@pytest.mark.slow
def test_one_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_STOP_SECONDS", 0.1)
    with pytest.raises(DaemonSilent, match="did not exit"), jitserver.run_daemon() as daemon:
        os.kill(daemon.pid, signal.SIGSTOP)
    assert daemon.process.returncode == -signal.SIGKILL
