"""The client's uses of the operating system, compared with the names that Python has on macOS."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

SHARED_MEMORY = {"MAP_POPULATE", "memfd_create", "MFD_CLOEXEC", "MFD_ALLOW_SEALING"}
SHARED_MEMORY |= {"F_ADD_SEALS", "F_GET_SEALS", "F_SEAL_SHRINK", "F_SEAL_GROW", "F_SEAL_SEAL", "MSG_CMSG_CLOEXEC"}
"""Names that a client uses on the daemon's own machine only, which has Linux."""


@pytest.mark.slow
def test_the_client_uses_nothing_that_macos_lacks(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mypy", "--platform", "darwin", "--cache-dir", str(tmp_path), "client/jitclient"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    found = set(re.findall(r'has no attribute "(\w+)"', done.stdout))
    assert found == SHARED_MEMORY, done.stdout + done.stderr
