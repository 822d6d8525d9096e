import configparser
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from jitclient.core.directories import PROCESS_SETTINGS
from jitserver.cli.systemd import render
from jitserver.cli.systemd.target import Target

USER, SYSTEM = Target(None, "0123456789ab"), Target("alice", "0123456789ab")


def entries(text: str, section: str) -> list[tuple[str, str]]:
    """Return the entries of a section of a unit, in its order."""
    inside = re.split(r"^\[(\w+)\]$", text, flags=re.MULTILINE)
    lines = dict(zip(inside[1::2], inside[2::2], strict=True))[section].splitlines()
    return [(key, value) for key, _, value in (line.partition("=") for line in lines if line and line[0] != "#")]


def service(target: Target = USER, version: int = 252, **settings: str) -> dict[str, str]:
    return dict(entries(render.units(target, version, "/env/bin/python", settings)["service"], "Service"))


@pytest.mark.parametrize(
    ("word", "quoted"),
    [
        ("plain", '"plain"'),
        ("two words", '"two words"'),
        ("100%", '"100%%"'),
        ("%h", '"%%h"'),
        ('say "x"', '"say \\"x\\""'),
        ("it's", '"it\'s"'),
        ("back\\slash", '"back\\\\slash"'),
        ("a\nb\tc\r", '"a\\nb\\tc\\r"'),
        ("$HOME", '"$HOME"'),
        ("größe", '"größe"'),
        ("", '""'),
    ],
)
def test_a_word_is_quoted_for_systemd(word: str, quoted: str) -> None:
    assert render.quoted(word) == quoted


@pytest.mark.parametrize("target", [USER, SYSTEM])
def test_sections_are_whole(target: Target) -> None:
    texts = render.units(target, 256, "/env/bin/python", {"XLA_FLAGS": "--a=jitserver.socket ExecStart=/x serve"})
    for text in texts.values():
        assert text.endswith("\n")
        parser = configparser.RawConfigParser(strict=False, interpolation=None)
        parser.read_string(text)
        assert "Unit" in parser.sections()
    assert '"XLA_FLAGS=--a=jitserver.socket ExecStart=/x serve"' in texts["service"]


FOLDER = Path(__file__).parents[2] / "systemd"


@pytest.mark.parametrize("target", [USER, SYSTEM])
def test_they_are_the_files_of_the_folder_but_for_names_and_command(target: Target) -> None:
    name = "jitserver@" if target.user else "jitserver"
    for suffix, text in render.units(target, 256, "/env/bin/python", {}).items():
        ours = (FOLDER / target.scope / f"{name}.{suffix}").read_text().splitlines()
        differ = {line.partition("=")[0] for line in set(text.splitlines()) ^ set(ours) if not line.startswith("#")}
        assert differ == (
            {"ListenStream"} if suffix == "socket" else {"Requires", "After", "ExecStart", "UnsetEnvironment"}
        )


def test_what_protects_a_user_protects_all() -> None:
    system, user = (
        entries((FOLDER / path).read_text(), "Service")
        for path in ("system/jitserver@.service", "user/jitserver.service")
    )
    own = {"ExecStart", "CacheDirectory"}
    assert [entry for entry in user if entry[0] not in own and entry not in system] == []


def test_the_wheel_has_the_files() -> None:
    built = tomllib.loads((FOLDER.parent / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert built["force-include"]["systemd"] == "jitserver/cli/systemd/units"


def test_the_command_runs_this_interpreter_at_the_users_address() -> None:
    text = render.units(USER, 252, "/odd path/100%/$HOME/python", {})["service"]
    command = dict(entries(text, "Service"))["ExecStart"]
    assert shlex.split(command) == [
        *[":/odd path/100%%/$HOME/python", "-P", "-m", "jitserver", "serve"],
        *["--address", "unix:%t/jitserver/0123456789ab.sock"],
    ]


def test_process_settings_are_given_and_all_others_taken_away() -> None:
    text = render.units(USER, 252, "/p", {"XLA_FLAGS": "--a --b", "PYTHONPATH": "/x"})["service"]
    found = entries(text, "Service")
    assert [value for key, value in found if key == "Environment"] == ['"PYTHONPATH=/x"', '"XLA_FLAGS=--a --b"']
    taken = dict(found)["UnsetEnvironment"].split()
    assert set(taken) == {*PROCESS_SETTINGS} - {"XLA_FLAGS"}


def test_what_the_user_set_reaches_the_unit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in PROCESS_SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    (tmp_path / "site-packages").mkdir()
    monkeypatch.setenv("XLA_FLAGS", "--a")
    monkeypatch.setenv("JAX_PLATFORMS", "")  # as good as not set, for the digest too
    monkeypatch.setenv("EDITOR", "vi")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{tmp_path}/site-packages")
    assert render.process_settings() == {"XLA_FLAGS": "--a", "PYTHONPATH": f"{tmp_path}/site-packages"}


def test_only_the_systems_unit_names_a_user_and_it_is_not_root() -> None:
    assert service(SYSTEM)["User"] == "%i"
    assert "User" not in service(USER)
    assert dict(entries(render.units(SYSTEM, 252)["socket"], "Socket"))["SocketUser"] == "%i"


@pytest.mark.parametrize("target", [USER, SYSTEM])
def test_what_keeps_the_daemon_up(target: Target) -> None:
    texts = render.units(target, 252)
    assert ("StartLimitIntervalSec", "0") in entries(texts["service"], "Unit")
    found = service(target)
    assert (found["Type"], found["Restart"]) == ("notify", "always")
    assert int(found["TimeoutStopSec"]) > 30, "less than the daemon's drain"
    socket = dict(entries(texts["socket"], "Socket"))
    assert (socket["SocketMode"], socket["TriggerLimitIntervalSec"]) == ("0600", "0")
    assert socket["DirectoryMode"] == ("0755" if target.user else "0700")


@pytest.mark.parametrize("target", [USER, SYSTEM])
def test_nothing_that_breaks_xla_or_hides_gpus(target: Target) -> None:
    broken = {"MemoryDenyWriteExecute", "PrivateDevices", "ProcSubset", "PrivateUsers", "PrivateTmp", "ProtectHome"}
    assert not broken & set(service(target))


def test_restarts_back_off_where_systemd_can() -> None:
    assert "RestartSteps" not in service(version=253)
    assert service(version=254)["RestartSteps"] == "6"


@pytest.mark.parametrize(
    ("python", "fit"), [("/a b/%/$x/python", True), ('/a"b/p', False), ("/it's/p", False), ("/a\\b", False)]
)
def test_paths_that_systemd_refuses_are_known(python: str, fit: bool) -> None:
    assert render.is_fit(python) == fit


def test_names_carry_the_digest() -> None:
    assert (USER.socket, USER.service) == ("jitserver-0123456789ab.socket", "jitserver-0123456789ab.service")
    assert (SYSTEM.socket, SYSTEM.service) == (
        "jitserver-0123456789ab@alice.socket",
        "jitserver-0123456789ab@alice.service",
    )
    assert str(SYSTEM.address) == "unix:/run/jitserver/0123456789ab/alice.sock"
    assert str(SYSTEM.files["socket"]) == "/etc/systemd/system/jitserver-0123456789ab@.socket"


def test_the_cli_reads_units_without_jax() -> None:
    code = "import jitserver.cli.install, jitserver.cli.lifecycle, sys; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-P", "-c", code], check=False).returncode == 0
