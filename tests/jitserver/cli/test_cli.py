"""The command line in processes of its own: output and exit status."""

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitclient
from jitclient.core.directories import HOST_DEVICES_FLAG
from jitclient.errors import AddressTaken
from jitclient.wire.address import Address
from jitclient.wire.labels import size
from jitserver.daemon.address_lock import HeldAddress

COUNTERS = {
    "pid",
    "uptime_s",
    "version",
    "address",
    "devices",
    "sessions",
    "entries",
    "hits",
    "misses",
    "traces",
    "compiles",
    "client_traces",
    "local_runs",
    "compile_seconds_saved",
}
NOT_RUNNING = 3


@pytest.fixture
def nowhere(short_path: Path) -> dict[str, str]:
    return {"JITSERVER_ADDRESS": f"unix:{short_path}/d.sock"}


def test_status_of_a_daemon(daemon: str, cli: Callable[..., Any]) -> None:
    found = json.loads(cli("status", "--json").stdout)
    assert found.keys() >= COUNTERS
    assert found["running"] is True
    assert found["address"] == daemon
    assert found["share"] is None
    assert all(isinstance(value, (int, float, str, list, dict)) for name, value in found.items() if name != "share")
    text = cli("status").stdout
    assert f"pid {found['pid']}" in text
    assert found["max_disk_bytes"] > found["other_disk_bytes"] >= 0
    assert f"limit for all {size(found['max_disk_bytes'])}" in text


@pytest.mark.slow
def test_equal_settings_are_one_daemon_in_all_shells(cli: Callable[..., Any], short_path: Path) -> None:
    def run(*command: str, at: str = "a", flags: str = "") -> Any:
        (short_path / at).mkdir(mode=0o700, exist_ok=True)
        places = {"XDG_RUNTIME_DIR": str(short_path / at), "JITSERVER_CACHE_DIR": str(short_path / "cache")}
        done = cli(*command, "--json", env={"JITSERVER_ADDRESS": "", "XLA_FLAGS": flags, **places})
        return json.loads(done.stdout)

    one, four = (f"{HOST_DEVICES_FLAG}={number}" for number in (1, 4))
    try:
        first = run("start")
        assert first["result"] == "started"
        again = [run("start"), run("start", at="b"), run("start", flags=one)]
        assert again == [{**first, "result": "running already"}] * 3
        other = run("start", at="b", flags=four)
        assert other["result"] == "started"
        assert [each["pid"] for each in run("status", at="b")["others"]] == [other["pid"]]
        assert f"pid {first['pid']}" in run("status", flags="--xla_dump_to=x")["error"]
    finally:
        stopped = run("stop", "--all", at="b")
    assert sorted(each["pid"] for each in stopped["daemons"]) == sorted([first["pid"], other["pid"]])
    assert run("stop", "--all")["status"] == NOT_RUNNING


def test_commands_that_only_read_begin_no_session(daemon: str, cli: Callable[..., Any]) -> None:
    before = json.loads(cli("status", "--json").stdout)["sessions"]
    cli("cache", "ls")
    assert json.loads(cli("status", "--json").stdout)["sessions"] == before


@pytest.mark.parametrize(
    "command",
    [
        ("status",),
        ("stop",),
        ("cache", "ls"),
        ("cache", "clear"),
        ("cache", "show", "x"),
        ("cache", "why", "x"),
        ("logs",),
        ("status", "--calls"),
    ],
)
def test_without_a_daemon_the_status_is_3_and_none_is_started(
    command: tuple[str, ...], cli: Callable[..., Any], nowhere: dict[str, str], short_path: Path
) -> None:
    for_people = cli(*command, env={**nowhere, "JITSERVER_AUTOSTART": "1"})
    assert for_people.returncode == NOT_RUNNING
    assert "not running" in for_people.stderr
    assert for_people.stdout == ""
    for_programs = cli(*command, "--json", env=nowhere)
    assert for_programs.returncode == NOT_RUNNING
    found = json.loads(for_programs.stdout)
    assert (found["running"], found["type"], found["status"]) == (False, "DaemonUnavailable", NOT_RUNNING)
    assert found["error"]
    assert list(short_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "kind", "status", "says"),
    [
        (("cache", "show"), "MissingParameter", 2, "KEY"),
        (("cache", "show", ""), "UsageError", 2, "KEY must not be empty"),
        (("cache", "ls", "--sort", "x"), "BadParameter", 2, "'x'"),
        (("status", "--nonsense"), "NoSuchOption", 2, "--nonsense"),
        (("cache", "rm", "nothing"), "ClickException", 1, "'nothing'"),
        (("arrays", "rm", "nothing"), "ClickException", 1, "'nothing'"),
        (("status", "--address", "http://x"), "SettingsError", 1, "http://x"),
    ],
)
@pytest.mark.usefixtures("daemon")
def test_an_error_is_one_object_for_programs(
    words: tuple[str, ...], kind: str, status: int, says: str, here: Callable[..., Any]
) -> None:
    done = here(*words, "--json")
    found = json.loads(done.stdout)
    assert says in found.pop("error")
    assert found == {"type": kind, "status": status}
    assert (done.exit_code, done.stderr) == (status, "")
    shown = here(*words)
    assert (shown.exit_code, shown.stdout) == (status, "")
    assert says in shown.stderr


def test_wrong_usage_has_status_2(cli: Callable[..., Any]) -> None:
    assert cli("nonsense").returncode == 2
    assert cli("cache", "show").returncode == 2


@pytest.mark.parametrize("option", ["--drain", "--idle-exit"])
@pytest.mark.parametrize("seconds", ["nan", "inf", "1e+30"])
def test_a_daemon_has_no_time_without_an_end(option: str, seconds: str, cli: Callable[..., Any]) -> None:
    done = cli("serve", "--address", "unix:/dev/null/d.sock", option, seconds)
    assert done.returncode == 2
    assert f"{seconds} is not a number of seconds" in done.stderr


def test_a_bad_setting_is_an_error_without_a_traceback(cli: Callable[..., Any]) -> None:
    done = cli("status", env={"JITSERVER_ADDRESS": "http://x"})
    assert done.returncode == 1
    assert "http://x" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "command", ["serve", "start", "stop", "restart", "status", "logs", "demo", "doctor", "cache", "install"]
)
def test_every_command_has_help(command: str, cli: Callable[..., Any]) -> None:
    done = cli(command, "--help")
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) > 4


def test_help_names_all_commands(cli: Callable[..., Any]) -> None:
    text = cli("--help").stdout
    commands = "cache demo doctor install logs restart serve start status stop uninstall"
    for command in commands.split():
        assert f"\n  {command} " in text


def test_no_command_but_serve_imports_jax_or_numpy(run_script: Callable[..., Any], daemon: str) -> None:
    loaded = run_script(
        """
        import json, sys
        from jitserver.cli import main
        for line in ("status", "cache ls", "status --calls", "doctor", "serve --help", "demo --help", "install --help"):
            arguments = line.split()
            try:
                main(arguments)
            except SystemExit as end:
                assert end.code == 0, arguments
        print()
        print(json.dumps([name for name in ("jax", "jaxlib", "numpy") if name in sys.modules]))
        """
    )
    assert loaded == []


def test_status_imports_no_more_than_it_needs(run_script: Callable[..., Any], daemon: str) -> None:
    of_others = ("jitclient.calls", "jitclient.session.launch", "jitclient.session.session", "platformdirs", "rich")
    assert all(map(importlib.util.find_spec, of_others)), "these are the names of modules"
    loaded = run_script(
        """
        import json, sys
        from jitserver.cli import main
        main(["status"], standalone_mode=False)
        print(json.dumps(list(sys.modules)))
        """
    )
    assert "rpyc" in loaded, "it has asked a daemon"
    assert [name for name in of_others if name in loaded] == []


@pytest.mark.cpu(reason="the platform in tests/other_platform counts no operations")
def test_the_cache_can_be_listed_shown_and_cleared(daemon: str, cli: Callable[..., Any]) -> None:
    salt = np.random.default_rng().random()

    @jitclient.jit(static_argnames="mode", keep_unused=True)
    def looked_into(x: Any, mode: str) -> Any:
        return x + salt

    looked_into(np.zeros((3, 4), np.float32), mode="fast")
    [entry] = [e for e in json.loads(cli("cache", "ls", "--json").stdout) if e["name"] == "looked_into"]
    assert entry["label"] == "looked_into(f32[3,4])"
    assert entry["where"].startswith(__file__)
    assert entry["options"] == "keep_unused=True, argument 'mode'='fast'"
    assert entry["context"]["jax"]
    assert entry["function_key"] == jitclient.function_key(looked_into)
    assert set(entry["seconds"]) == {"load", "trace", "lower", "compile"}
    assert "looked_into(f32[3,4])" in cli("cache", "ls").stdout

    [shown] = json.loads(cli("cache", "show", entry["key"][:10], "--json").stdout)
    of_compiler = {name: shown.pop(name) for name in ("memory", "costs")}
    assert all(of_compiler.values())
    assert shown == {**entry, "disk_bytes": shown["disk_bytes"]}  # it is written to the disk later
    assert entry["key"] in cli("cache", "show", "looked_into").stdout

    assert json.loads(cli("cache", "rm", entry["key"], "--json").stdout) == [entry["key"]]
    assert cli("cache", "show", entry["key"]).returncode == 1
    assert looked_into(np.zeros((3, 4), np.float32), mode="fast").shape == (3, 4), "a session keeps what it uses"

    assert cli("cache", "clear").stdout.startswith("removed ")
    assert json.loads(cli("cache", "ls", "--json").stdout) == []


def test_what_the_terminal_cannot_show_is_escaped(daemon: str, cli: Callable[..., Any]) -> None:
    @jitclient.jit
    def größer(x: Any) -> Any:
        return x + 1

    größer(np.float32(1))
    done = cli("cache", "ls", env={"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "gr\\xf6\\xdfer(f32[])" in done.stdout


def test_start_restart_logs_and_stop(cli: Callable[..., Any], nowhere: dict[str, str], short_path: Path) -> None:
    pids = set()
    try:
        started = json.loads(cli("start", "--json", env=nowhere).stdout)
        pids.add(started["pid"])
        assert started["result"] == "started"
        again = json.loads(cli("start", "--json", env=nowhere).stdout)
        assert (again["result"], again["pid"]) == ("running already", started["pid"])
        restarted = json.loads(cli("restart", "--json", env=nowhere).stdout)
        pids.add(restarted["pid"])
        assert len(pids) == 2
        assert f"serving at {nowhere['JITSERVER_ADDRESS']}" in cli("logs", env=nowhere).stdout
        stopped = json.loads(cli("stop", "--json", env=nowhere).stdout)
        assert stopped["pid"] == restarted["pid"]
        assert cli("status", env=nowhere).returncode == NOT_RUNNING
        assert not (short_path / "d.sock").exists()
    finally:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


@pytest.mark.parametrize("command", ["start", "restart", "demo"])
def test_a_daemon_that_cannot_be_started_is_a_failure_with_status_1(
    command: str, cli: Callable[..., Any], nowhere: dict[str, str]
) -> None:
    done = cli(command, env={**nowhere, "JAX_PLATFORMS": "nonsense"})
    assert done.returncode == 1
    assert "nonsense" in done.stderr


@pytest.mark.slow
def test_a_daemon_ends_after_its_idle_timeout(cli: Callable[..., Any], nowhere: dict[str, str]) -> None:
    done = cli("serve", "--idle-exit", "0.1", env=nowhere)
    assert done.returncode == 0
    assert "serving at" in done.stderr
    assert "idle for" in done.stderr


def test_a_daemon_restarts_when_idle_with_too_many_classes(
    new_daemon: Callable[..., Any],
    nowhere: dict[str, str],
    until: Callable[..., Any],
    run_script: Callable[..., Any],
    counts: Callable[..., dict[str, Any]],
) -> None:
    with new_daemon(nowhere["JITSERVER_ADDRESS"], "--most-classes", "0") as daemon:
        value = run_script(
            """
            import json, jax, jitclient

            @jax.tree_util.register_pytree_node_class
            class Box:
                def __init__(self, x): self.x = x
                def tree_flatten(self): return (self.x,), None
                @classmethod
                def tree_unflatten(cls, aux, children): return cls(*children)

            print(json.dumps(float(jitclient.jit(lambda box: Box(box.x + 1))(Box(1.0)).x)))
            """,
            env=nowhere,
        )
        assert value == 2

        def is_new() -> bool:
            # Another daemon would take the address as soon as it is free.
            with contextlib.suppress(AddressTaken):
                HeldAddress(Address.parse(nowhere["JITSERVER_ADDRESS"])).release()
                pytest.fail("the address was free")
            done = json.loads(
                subprocess.run(
                    [sys.executable, "-P", "-m", "jitserver", "status", "--json"],
                    env={**os.environ, **nowhere},
                    capture_output=True,
                    text=True,
                    check=False,
                ).stdout
            )
            return bool(done["running"]) and done["compiles"] == 0

        until(is_new, "the daemon to restart")
        made = counts(nowhere["JITSERVER_ADDRESS"])
        assert (made["classes"], made["pid"]) == (0, daemon.pid)
        assert "user classes" in made["restarted"]


@pytest.mark.timeout(600)
def test_the_second_run_of_the_demo_compiles_nothing(cli: Callable[..., Any], daemon: str) -> None:
    done = cli("demo", "--layers", "2", "--steps", "3", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    first, second = result["runs"]
    assert [first[name] for name in ("captures_loaded", "traces", "compiles")] == [1, 1, 1]
    assert [second[name] for name in ("captures_loaded", "traces", "compiles")] == [0, 0, 0]
    assert result["loss_difference"] < (1e-3 if "JITSERVER_TEST_PLATFORM" in os.environ else 1e-300)
    # Which way so few steps go depends on the text, the documentation of the version of Python.
    assert len(set(first["losses"])) == len(first["losses"]) == 3
    other = json.loads(cli("demo", "--layers", "2", "--steps", "3", "--json").stdout)
    assert other["runs"][0]["compiles"] == 1, "each demo is new to the daemon"
