"""`jitserver status --calls`: what the daemon is doing."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitclient
from jitclient.wire.introspection import Making
from jitserver.cli import status
from jitserver.system.process_watch import program_of


def test_it_shows_sessions_programs_and_calls(daemon: str, cli: Callable[..., Any]) -> None:
    @jitclient.jit
    def looked_at(x: Any) -> Any:
        return x * 2.5

    held = jitclient.device_put(np.zeros((16, 16), np.float32))
    for _ in range(7):
        held = looked_at(held)
    jitclient.block_until_ready(held)
    told = json.loads(cli("status", "--calls", "--json").stdout)
    assert (told["running"], told["address"]) == (True, daemon)
    found = told["activity"]
    [hot] = [hot for hot in found["programs"] if hot["label"] == "looked_at(f32[16,16])"]
    assert hot["calls"] == 7
    assert hot["seconds"] > 0
    # Tests that came before may have left another session of this process.
    mine = [one for one in found["sessions"] if one["pid"] == os.getpid()]
    assert max(one["calls"] for one in mine) >= 7
    assert any(one["arrays"] >= 1 and one["array_bytes"] >= 1024 for one in mine)
    assert any(one["seconds"] > 0 for one in mine)
    assert {one["program"] for one in mine} == {program_of(os.getpid())}
    assert [device["device"] for device in found["devices"]] == told["devices"]
    assert found["making"] == []

    text = cli("status", "--calls").stdout
    for part in (f"pid {told['pid']}", "queued", str(os.getpid()), "holding"):
        assert part in text
    assert "\x1b" not in text


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

        def is_making() -> Any:
            return json.loads(cli("status", "--calls", "--json").stdout)["activity"]["making"]

        [making] = until(is_making, "the program to be made")
        assert (making["label"], making["phase"], making["pids"]) == ("slow_to_make(f32[3])", "tracing", [client.pid])
        assert making["seconds"] > 0
        assert "slow_to_make(f32[3])" in cli("status", "--calls").stdout
        gate.open()
        assert client.wait(60) == 0
        assert is_making() == []
    finally:
        client.kill()
        client.wait()


def test_a_program_that_is_made_for_another_machine_names_no_process() -> None:
    making = Making("k" * 32, "f(f32[3])", "tracing", 1.5, (0, 17))
    assert status._making(making)[3:] == ["remote", "17"]


def test_a_program_that_is_made_for_nobody_is_listed() -> None:
    making = Making("k" * 32, "f(f32[3])", "compiling", 1.5, ())
    assert status._making(making) == ["f(f32[3])", "compiling", "1.5 s", "(clients have gone)", "none"]
