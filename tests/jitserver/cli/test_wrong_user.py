"""Another user's daemon at the address: commands and programs say so at once."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jitclient.wire.address import Address
from tests.conftest import run_python

OTHER = 65534
SAYS = f"belongs to uid {OTHER}; a daemon serves one user"


@pytest.fixture
def address(open_path: Path) -> Iterator[str]:
    """The address of a socket at which another user's process listens, and answers nothing."""
    if os.getuid() != 0:
        pytest.skip("only root can be another user")
    os.chown(open_path, OTHER, -1)
    where = Address(open_path / "d.sock")
    os.seteuid(OTHER)
    try:
        listening = where.listen()
    finally:
        os.seteuid(0)
    with listening:
        yield str(where)


@pytest.mark.parametrize("command", ["status", "start", "stop", "restart"])
def test_commands_fail_with_the_user(command: str, address: str, here: Callable[..., Any]) -> None:
    done = here("--address", address, command)
    assert done.exit_code == 1
    assert SAYS in done.output


@pytest.mark.parametrize(
    "command",
    ["status", "start", "stop", "restart", "status --calls", "cache ls", "cache clear", "cache why x", "arrays ls"],
)
def test_programs_get_the_error_as_one_object(command: str, address: str, here: Callable[..., Any]) -> None:
    done = here("--address", address, *command.split(), "--json")
    found = json.loads(done.stdout)
    assert SAYS in found.pop("error")
    assert found == {"type": "WrongUser", "status": 1}
    assert (done.exit_code, done.stderr) == (1, "")


def test_doctor_finds_a_problem_and_a_remedy(address: str, here: Callable[..., Any]) -> None:
    done = here("--address", address, "doctor", "--json")
    assert done.exit_code == 1
    (found,) = (check for check in json.loads(done.stdout)["checks"] if check["check"] == "daemon")
    assert found["level"] == "problem"
    assert SAYS in found["says"]
    assert "JITSERVER_ADDRESS" in found["do"]


def test_a_program_says_it_once_and_runs_locally(address: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("""
import numpy as np, jitclient
@jitclient.jit
def double(x): return x * 2
@jitclient.jit
def triple(x): return x * 3
print(float(double(np.float32(2))), float(triple(np.float32(2))), float(double(np.ones(3, np.float32))[0]))
""")
    done = run_python(
        str(program), env={"JITSERVER_ADDRESS": address, "JITSERVER_FALLBACK": "local", "JITSERVER_AUTOSTART": "1"}
    )
    assert (done.returncode, done.stdout) == (0, "4.0 6.0 2.0\n"), done.stderr
    assert done.stderr.count(SAYS) == 1, done.stderr
    assert Address.parse(address).path.stat().st_uid == OTHER
