"""Requests to systemd, where a script stands in for it: each request is a process."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SYSTEMCTL = """#!/bin/sh
echo "$*" >> "$0.asked"
for unit in "$@"; do
    case "$unit" in
        *.socket) echo "$SOCKET" ;;
        *.service) echo "$SERVICE" ;;
    esac
done
"""
PROGRAM = """
    import json
    from jitserver.cli.systemd import systemctl
    from jitserver.cli.systemd.target import Target, installed, manager_directory

    target = Target()
    for folder in (target.directory, manager_directory(target)):
        folder.mkdir(parents=True, exist_ok=True)
    target.files["socket"].touch()
    print(json.dumps([installed() == target, systemctl.waits(target)]))
"""


@pytest.mark.parametrize(
    ("socket", "service", "waits"),
    [
        ("active", "inactive", True),
        ("active", "failed", True),
        ("active", "activating", False),
        ("active", "active", False),
        ("inactive", "inactive", False),
    ],
)
def test_it_takes_one_question_to_see_that_a_daemon_waits(
    socket: str, service: str, waits: bool, run_script: Callable[..., Any], short_path: Path
) -> None:
    script = short_path / "systemctl"
    script.write_text(SYSTEMCTL)
    script.chmod(0o700)
    folders = {name: str(short_path) for name in ("XDG_CONFIG_HOME", "XDG_RUNTIME_DIR")}
    states = {"SOCKET": socket, "SERVICE": service}
    path = f"{short_path}{os.pathsep}{os.environ['PATH']}"
    assert run_script(PROGRAM, env={**folders, **states, "PATH": path, "JITSERVER_ADDRESS": ""}) == [True, waits]
    assert len((short_path / "systemctl.asked").read_text().splitlines()) == 1
