"""`jitserver top`: what the daemon is doing."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitclient
from jitclient.wire.introspection import Making
from jitserver.cli import top
from jitserver.system.process_watch import program_of


def test_it_shows_sessions_programs_and_calls(daemon: str, cli: Callable[..., Any]) -> None:
    @jitclient.jit
    def looked_at(x: Any) -> Any:
        return x * 2.5

    held = jitclient.device_put(np.zeros((16, 16), np.float32))
    for _ in range(7):
        held = looked_at(held)
    jitclient.block_until_ready(held)
    found = json.loads(cli("top", "--json").stdout)
    assert found["running"] is True
    assert found["status"]["address"] == daemon
    [hot] = [hot for hot in found["hottest"] if hot["label"] == "looked_at(f32[16,16])"]
    assert hot["calls"] == 7
    assert hot["seconds"] > 0
    # Tests that came before may have left another session of this process.
    mine = [one for one in found["sessions"] if one["pid"] == os.getpid()]
    assert max(one["calls"] for one in mine) >= 7
    assert any(one["arrays"] >= 1 and one["array_bytes"] >= 1024 for one in mine)
    assert any(one["busy"] > 0 and one["received_per_second"] > 0 and one["sent_per_second"] > 0 for one in mine)
    assert {one["program"] for one in mine} == {program_of(os.getpid())}
    assert [device["device"] for device in found["devices"]] == found["status"]["devices"]
    assert found["making"] == []

    text = cli("top").stdout
    for part in (f"pid {found['status']['pid']}", "hottest", str(os.getpid()), "calls/s"):
        assert part in text
    assert "\x1b" not in text


@pytest.mark.parametrize("lends", [True, False], ids=["shared memory", "socket"])
def test_transfers_are_those_of_the_session(own: Any, lends: bool) -> None:
    program = """
        import json, os, numpy as np, jitclient
        from jitclient.session import process
        from jitclient.wire.introspection import Snapshot, Top
        from jitclient.wire.messages import Verb

        def moved():
            [mine] = process.session().ask(Verb.TOP, Top(0.0), Snapshot).sessions
            return np.array([mine.received, mine.sent])

        double = jitclient.jit(lambda x: x * 2)
        large, small = np.ones(100_000, np.float32), np.ones(1000, np.float32)
        for x in (large, large, small, small):
            np.asarray(double(x))
        found = [moved()]
        for x in (large, small):
            result = double(x)
            assert float(np.asarray(result)[-1]) == 2
            found.append(moved())
        print(json.dumps(np.diff(found, axis=0).tolist()))
    """
    with own.serving(*([] if lends else ["--shared-memory", "0"])):
        found = own.run(program)
    for pair, nbytes in zip(found, (400_000, 4000), strict=True):
        for moved in pair:
            assert nbytes <= moved < nbytes + 1000, "the values, and the messages that have or describe them"


def test_calls_before_the_interval_are_not_counted(daemon: str, cli: Callable[..., Any]) -> None:
    @jitclient.jit
    def called_before(x: Any) -> Any:
        return x * 3.5

    np.asarray(called_before(np.zeros(3, np.float32)))
    found = json.loads(cli("top", "--json", "--interval", "0.1").stdout)
    assert 0.1 <= found["seconds"] < found["status"]["uptime_s"]
    assert found["hottest"] == []
    assert found["calls"] == 0


@pytest.mark.slow
def test_programs_in_progress_are_shown(
    daemon: str, cli: Callable[..., Any], until: Callable[..., Any], tmp_path: Path, gate: Any
) -> None:
    program = tmp_path / "slow.py"
    program.write_text(
        "import numpy as np\nimport jitclient\n\n"
        f"@jitclient.jit\ndef slow_to_make(x):\n    {gate.waits}\n    return x\n\n"
        "np.asarray(slow_to_make(np.zeros(3, np.float32)))\n"
    )
    client = subprocess.Popen([sys.executable, str(program)])
    try:
        [making] = until(lambda: json.loads(cli("top", "--json").stdout)["making"], "the program to be made")
        assert (making["label"], making["phase"], making["pids"]) == ("slow_to_make(f32[3])", "tracing", [client.pid])
        assert making["seconds"] > 0
        assert "slow_to_make(f32[3])" in cli("top").stdout
        gate.open()
        assert client.wait(60) == 0
        assert json.loads(cli("top", "--json").stdout)["making"] == []
    finally:
        client.kill()
        client.wait()


def test_when_the_daemon_ends_within_the_interval_it_says_so(
    new_daemon: Callable[..., Any], short_path: Path, monkeypatch: pytest.MonkeyPatch, here: Callable[..., Any]
) -> None:
    address = f"unix:{short_path}/d.sock"
    with new_daemon(address) as daemon:
        monkeypatch.setattr(time, "sleep", lambda seconds: daemon.terminate() or daemon.wait())
        result = here("--address", address, "top", "--interval", "1")
    assert result.exit_code == 3
    assert "not running" in result.stderr


def test_a_program_that_is_made_for_another_machine_names_no_process() -> None:
    making = Making("k" * 32, "f(f32[3])", "tracing", 1.5, (0, 17))
    assert top._making(making)[3:] == ["remote", "17"]


def test_a_program_that_is_made_for_nobody_is_listed() -> None:
    making = Making("k" * 32, "f(f32[3])", "compiling", 1.5, ())
    assert top._making(making) == ["f(f32[3])", "compiling", "1.5 s", "(clients have gone)", "none"]
