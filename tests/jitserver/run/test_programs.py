"""A program does under `jitserver run` what it does under `python`, to the byte, with a helper and without one."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ...jitclient.api.programs import PLAIN_PYTHON, WITH_JAX, python
from ...sampled import sampled

ENDS = ("exit", "interrupt", "terminated", "killed", "aborted", "fail", "error", "last_error", "debugger")
STARTS = ("arguments", "globals", "path", "relative", "absolute", "link", "safe", "flags", "settings", "environment")
STREAMS = ("descriptor", "closed", "no_", "stdin", "input", "terminal", "unbuffered", "broken_pipe", "order_of")
MODULES = ("module", "package", "part_of", "missing", "folder", "archive", "compiled")
OWN_PROCESS = (*ENDS, *STARTS, *STREAMS, *MODULES)
"""How the names of rows begin that run in the command's own process, too: those about how a process starts, is called
and exits. All else is the code of `python -m jitclient`, under which all rows run.
"""

CORE = {"arguments", "error", "error_in_package", "interrupted"}
"""Rows that run with the core, since they cover most."""

IN_CORE = [pytest.param(name, marks=pytest.mark.core) for name in PLAIN_PYTHON if name in CORE]
OTHERS = [name for name in PLAIN_PYTHON if name not in CORE]
OF_OWN_PROCESS = [name for name in OTHERS if name.startswith(OWN_PROCESS)]


def jitserver(flags: Sequence[str], program: Sequence[str]) -> list[str]:
    return [sys.executable, *flags, "-m", "jitserver", "run", *program]


@pytest.mark.parametrize("name", [*IN_CORE, *sampled(OTHERS, 3)])
def test_in_a_child_of_a_helper(name: str, warm: Any, tmp_path: Path) -> None:
    program = PLAIN_PYTHON[name]
    program.write(tmp_path)
    expected = program.run(tmp_path, python, warm.variables)
    assert program.run(tmp_path, jitserver, warm.variables) == expected


@pytest.mark.parametrize(
    "name",
    [*(row for row in IN_CORE if str(row.values[0]).startswith(OWN_PROCESS)), *sampled(OF_OWN_PROCESS, 3, first=1)],
)
def test_in_a_process_of_its_own(name: str, tmp_path: Path, cold: Any) -> None:
    program = PLAIN_PYTHON[name]
    program.write(tmp_path)
    expected = program.run(tmp_path, python, cold.variables)
    assert program.run(tmp_path, jitserver, cold.variables) == expected


@pytest.mark.parametrize("name", sampled(list(WITH_JAX), 2))
def test_with_jax(name: str, warm: Any, daemon: str, tmp_path: Path) -> None:
    program = WITH_JAX[name]
    program.write(tmp_path)
    env = {**warm.variables, "JITSERVER_ADDRESS": daemon}
    expected = program.run(tmp_path, python, env)
    for _ in range(2):
        assert program.run(tmp_path, jitserver, env) == expected
