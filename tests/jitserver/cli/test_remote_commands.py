"""`--address` of every command. tests/end_to_end/ssh has the machines that it leads to."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from jitserver.cli import main


def leaves(group: click.Group) -> Iterator[click.Command]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        yield from leaves(command) if isinstance(command, click.Group) else [command]


def test_every_command_has_it_once() -> None:
    for command in [*leaves(main), *leaves(main)]:
        assert sum("--address" in option.opts for option in command.params) == 1, command.name


def test_it_is_the_address_of_the_daemon(daemon: str, cli: Callable[..., Any]) -> None:
    done = cli("status", "--address", daemon, "--json", env={"JITSERVER_ADDRESS": "unix:/nowhere"})
    assert json.loads(done.stdout)["address"] == daemon


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An `ssh` that writes its last word, and ends with status 5."""
    said = tmp_path / "said"
    script = tmp_path / "ssh"
    script.write_text(f'#!/bin/sh\nfor last; do :; done\necho "$last" >> {said}\nexit 5\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return said


@pytest.mark.parametrize(
    "line",
    [
        ["--address", "ssh://host/opt", "--json"],
        ["--json", "--address=ssh://host/opt"],
    ],
)
@pytest.mark.parametrize("command", [["status"], ["logs", "-n", "3"], ["cache", "rm", "a b"], ["install", "--dry-run"]])
def test_what_is_elsewhere_is_done_there(
    ssh: Path, here: Callable[..., Any], command: list[str], line: list[str]
) -> None:
    done = here(*command, *line)
    assert done.exit_code == 5, done.output
    words = [*command, "--json"]
    assert ssh.read_text() == f"/opt/bin/jitserver {' '.join(words).replace('a b', chr(39) + 'a b' + chr(39))}\n"


def test_it_may_come_first(ssh: Path, here: Callable[..., Any]) -> None:
    assert here("--address", "ssh://host/opt", "status").exit_code == 5
    assert ssh.read_text() == "/opt/bin/jitserver status\n"


def test_help_is_from_here(ssh: Path, here: Callable[..., Any]) -> None:
    done = here("status", "--address", "ssh://host", "--help")
    assert done.exit_code == 0
    assert not ssh.exists()
