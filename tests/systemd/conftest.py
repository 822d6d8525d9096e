"""Boots of a real systemd, each for one script of checks whose results the tests look at one by one.

The command that boots one is in JITSERVER_TEST_SYSTEMD: it runs its arguments as root in a throw-away copy of this
machine. Without it these tests are skipped.
"""

import ast
import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

INSIDE = Path(__file__).parent / "inside"
BOOT_SECONDS = 170


def checks_of(script: str) -> list[str]:
    """The names of a script's checks, in their order."""
    tree = ast.parse((INSIDE / script).read_text())
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("check_")]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marker = metafunc.definition.get_closest_marker("systemd")
    if marker is not None and "check" in metafunc.fixturenames:
        metafunc.parametrize("check", checks_of(metafunc.module.SCRIPT))


@pytest.fixture
def outcome(check: str, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the boot's outcome of a check: `ok`, and `detail` where it failed."""
    command = os.environ.get("JITSERVER_TEST_SYSTEMD")
    if not command:
        pytest.skip("JITSERVER_TEST_SYSTEMD names no command that boots a systemd: units were not tested")
    outcomes, said = _boot(command, request.module.SCRIPT)
    return outcomes.get(check, {"ok": False, "detail": f"it was not reached:\n{said[-4000:]}"})


@functools.cache
def _boot(command: str, script: str) -> tuple[dict[str, dict[str, Any]], str]:
    done = subprocess.run(
        [command, "env", "JITSERVER_TEST_INSIDE=1", sys.executable, "-P", str(INSIDE / "harness.py"), script],
        env={**os.environ, "SYSTEMD_SANDBOX_TIMEOUT": str(BOOT_SECONDS)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"check"')]
    return {found["check"]: found for found in map(json.loads, lines)}, done.stdout
