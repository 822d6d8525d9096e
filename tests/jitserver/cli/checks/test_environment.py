"""Settings of the shell and of the daemon, and the versions of both."""

import dataclasses
import os
import platform
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jitclient.core.directories import HOST_DEVICES_FLAG
from jitclient.version import JAX, __version__, is_supported
from jitclient.wire.address import Address
from jitclient.wire.introspection import Status
from jitserver.cli.checks import environment
from jitserver.cli.checks.finding import DaemonState, Finding

PROJECT = Path(__file__).parents[4] / "pyproject.toml"
OPTIONAL = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
HERE = DaemonState(Address(Path("/nowhere/d.sock")))


def running(**said: Any) -> DaemonState:
    return dataclasses.replace(HERE, status=Status(**{**dict.fromkeys(Status.__struct_fields__, 0), **said}))


@pytest.fixture
def process_with() -> Iterator[Callable[..., DaemonState]]:
    """Processes with these settings, in place of daemons."""
    made = []

    def start(**settings: str) -> DaemonState:
        env = {**os.environ, **settings}
        program = "import sys; print(flush=True); sys.stdin.read()"
        process = subprocess.Popen(
            [sys.executable, "-S", "-c", program], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        made.append(process)
        assert process.stdout is not None
        process.stdout.readline()  # earlier, the kernel may not show the environment yet
        return running(pid=process.pid)

    yield start
    for process in made:
        process.communicate()


def levels(found: Iterator[Finding]) -> list[str]:
    return [finding.level for finding in found]


def test_settings_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    [found] = environment.settings(HERE)
    assert found.level == "ok"
    assert "JITSERVER_FALLBACK=error" in found.says
    assert "JAX_PLATFORMS=cpu" in found.says


def test_a_mistyped_name_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITSERVER_FALBACK", "local")
    monkeypatch.setenv("JITSERVER_SERVE_DRAIN", "3")  # an option of the command line
    first, second = environment.settings(HERE)
    assert (first.level, first.says) == ("warning", "JITSERVER_FALBACK is not a setting")
    assert "JITSERVER_FALLBACK" in first.do
    assert second.level == "ok"


def test_an_invalid_value_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITSERVER_REPORT", "perhaps")
    assert levels(environment.settings(HERE)) == ["problem", "ok"]


@pytest.mark.parametrize(
    ("there", "differs"),
    [
        ({"JITSERVER_REPORT": "lines"}, []),
        ({"XLA_FLAGS": f"{HOST_DEVICES_FLAG}=1"}, []),
        ({"XLA_FLAGS": "--xla_x=1"}, ["XLA_FLAGS is '' in this shell and '--xla_x=1' in the daemon"]),
    ],
)
def test_a_daemon_with_other_process_settings_is_a_warning(
    there: dict[str, str],
    differs: list[str],
    process_with: Callable[..., DaemonState],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    found = list(environment.settings(process_with(**there)))
    assert [finding.says for finding in found if finding.level == "warning"] == differs


def test_a_daemon_that_has_ended_is_no_warning() -> None:
    assert levels(environment.settings(running(pid=1 << 30))) == ["ok"]


PACKAGES = {name: environment._installed(name) for name in ("jax", "jaxlib")}
SAME = {"version": __version__, "python": platform.python_version(), "packages": PACKAGES}


@pytest.mark.parametrize(
    ("said", "level"),
    [
        ({}, "ok"),
        ({"version": "0.0.1"}, "warning"),
        ({"python": "3.9.1"}, "problem"),
        ({"packages": {**PACKAGES, "jax": "0.1"}}, "problem"),
    ],
)
def test_versions_of_a_daemon_are_compared(said: dict[str, Any], level: str) -> None:
    found = environment.versions(running(**{**SAME, **said}))
    assert found.level == level
    assert bool(found.do) == (level != "ok")
    assert ("the daemon has" in found.says) == (level != "ok")


@pytest.mark.parametrize("version", ["0.10.1", "0.13.0"])
def test_an_unsupported_jax_is_a_problem(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_installed", lambda name: version)
    for state in (HERE, running(**SAME)):
        found = environment.versions(state)
        assert (found.level, JAX in found.says) == ("problem", True)
        assert "pip install" in found.do


def test_supported_versions_are_those_of_the_package() -> None:
    assert JAX in [each.partition(";")[0].strip() for each in OPTIONAL["server"]]
    assert all(map(is_supported, ("0.10.2", "0.11.0.dev20260101", "0.12.0.1", "0.12.0rc1")))


def test_missing_jax_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    assert environment.versions(HERE).level == "ok"
    monkeypatch.setattr(environment, "_installed", lambda name: "")
    found = environment.versions(HERE)
    assert (found.level, "jax not installed" in found.says) == ("problem", True)
    assert environment.versions(running(**SAME)).level == "ok", "a client needs none"
