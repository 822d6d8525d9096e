"""`jitserver top`: prints once into pipes and as JSON, and updates on a terminal, which it then restores."""

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitclient
from jitclient.wire.introspection import Making
from jitserver.cli import picture

ENTERS, LEAVES = b"\x1b[?1049h", b"\x1b[?1049l"
HIDES, SHOWS = b"\x1b[?25l", b"\x1b[?25h"


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
    assert all("python" in one["program"] for one in mine)
    assert [device["device"] for device in found["devices"]] == found["status"]["devices"]
    assert found["making"] == []

    text = cli("top").stdout
    for part in (f"pid {found['status']['pid']}", "hottest", str(os.getpid()), "calls/s"):
        assert part in text
    assert "\x1b" not in text


def test_calls_before_the_interval_are_not_counted(daemon: str, cli: Callable[..., Any]) -> None:
    @jitclient.jit
    def called_before(x: Any) -> Any:
        return x * 3.5

    np.asarray(called_before(np.zeros(3, np.float32)))
    found = json.loads(cli("top", "--json", "--interval", "0.1").stdout)
    assert 0.1 <= found["seconds"] < found["status"]["uptime_s"]
    assert found["hottest"] == []
    assert found["calls"] == 0


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


class Terminal:
    """`jitserver top` on a pseudo-terminal."""

    def __init__(self, *arguments: str) -> None:
        self.end, inner = pty.openpty()
        self.before = termios.tcgetattr(self.end)
        # in a shell's background jobs, the tests and their children ignore Ctrl-C
        heeding = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        run = "from jitserver.cli import main; main(prog_name='jitserver')"
        command = [sys.executable, "-P", "-c", heeding + run, "top", *arguments]
        self.process = subprocess.Popen(command, stdin=inner, stdout=inner, stderr=inner, start_new_session=True)
        os.close(inner)
        self.output = b""

    def read(self) -> bytes:
        """All output until now."""
        while select.select([self.end], [], [], 0)[0]:
            try:
                self.output += os.read(self.end, 1 << 16)
            except OSError:  # the process has ended
                break
        return self.output

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.end)


@contextlib.contextmanager
def terminal(*arguments: str) -> Iterator[Terminal]:
    made = Terminal(*arguments)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize(
    ("how", "status"), [("q", 0), ("ctrl-c", 0), ("sigterm", 128 + signal.SIGTERM)], ids=lambda value: str(value)
)
def test_on_a_terminal_it_updates_until_it_is_ended_and_restores_the_terminal(
    how: str, status: int, daemon: str, until: Callable[..., Any]
) -> None:
    with terminal("--interval", "0.1") as shown:
        until(lambda: len(re.findall(rb"rates over", shown.read())) >= 3, "three pictures")
        assert ENTERS in shown.output
        assert LEAVES not in shown.output
        if how == "q":
            os.write(shown.end, b"q")
        else:
            os.kill(shown.process.pid, signal.SIGINT if how == "ctrl-c" else signal.SIGTERM)
        until(lambda: shown.read() and shown.process.poll() is not None, "it to end")
        assert shown.process.returncode == status
        after = shown.read().rpartition(ENTERS)[2]
        assert LEAVES in after
        assert after.rindex(SHOWS) > after.rindex(HIDES)
        assert b"Traceback" not in after
        assert termios.tcgetattr(shown.end) == shown.before


def test_without_a_daemon_the_screen_is_not_cleared(
    until: Callable[..., Any], short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JITSERVER_ADDRESS", f"unix:{short_path}/d.sock")
    with terminal() as shown:
        until(lambda: shown.read() and shown.process.poll() is not None, "it to end")
        assert shown.process.returncode == 3
        assert b"not running" in shown.read()
        assert ENTERS not in shown.output


def test_when_the_daemon_ends_the_message_is_on_the_restored_screen(
    new_daemon: Callable[..., Any], until: Callable[..., Any], short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"unix:{short_path}/d.sock"
    monkeypatch.setenv("JITSERVER_ADDRESS", address)
    with new_daemon(address) as daemon, terminal("--interval", "0.1") as shown:
        until(lambda: b"rates over" in shown.read(), "a picture")
        daemon.terminate()
        until(lambda: shown.read() and shown.process.poll() is not None, "it to end")
        assert shown.process.returncode == 3
        assert b"not running" in shown.read().rpartition(LEAVES)[2]


def test_once_prints_once_on_a_terminal_too(daemon: str, until: Callable[..., Any]) -> None:
    with terminal("--once") as shown:
        until(lambda: shown.read() and shown.process.poll() is not None, "it to end")
        assert shown.process.returncode == 0
        assert b"rates over" in shown.read()
        assert ENTERS not in shown.output


def test_a_program_that_is_made_for_another_machine_names_no_process() -> None:
    making = Making("k" * 32, "f(f32[3])", "tracing", 1.5, (0, 17))
    assert picture._making(making)[3:] == ["remote", "17"]
