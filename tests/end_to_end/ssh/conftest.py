"""Another machine: an sshd on loopback. See benchmarks/sshd.py."""

import contextlib
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[3]))  # the benchmarks are no installed package

from benchmarks.sshd import SSHD, Host

NewHost = Callable[..., contextlib.AbstractContextManager[Host]]


@pytest.fixture(scope="session")
def new_host() -> NewHost:
    """Starts another machine, on which no daemon runs. Skips its tests without an sshd that lets this user in."""
    if SSHD is None:
        pytest.skip("NO TEST OF ssh:// RUNS: there is no sshd here (apt-get install openssh-server)")

    @contextlib.contextmanager
    def start(delay: float = 0.0) -> Iterator[Host]:
        with tempfile.TemporaryDirectory(prefix="js-") as folder:
            host = Host(Path(folder), {}, delay)
            try:
                yield host
            except BaseException:
                print((Path(folder) / "sshd.log").read_text())
                raise
            finally:
                host.close()

    with start() as tried:
        command = ["ssh", "-o", "BatchMode=yes", "-p", str(tried.port), "127.0.0.1", "true"]
        done = subprocess.run(command, env={**os.environ, **tried.env}, capture_output=True, text=True)
    if done.returncode:  # such as for a user whose password is locked
        pytest.skip(f"NO TEST OF ssh:// RUNS: sshd does not let this user in: {done.stderr}")
    return start


@pytest.fixture(scope="module")
def host(new_host: NewHost, new_daemon: Callable[..., Any]) -> Iterator[Host]:
    """Another machine with a daemon, for the tests of a module."""
    with new_host() as made, new_daemon(made.socket):
        yield made


@pytest.fixture
def run_there(host: Host, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a program as a client of that machine."""

    def run(source: str, **env: str) -> subprocess.CompletedProcess[str]:
        path = tmp_path / "program.py"
        path.write_text(textwrap.dedent(source))
        return subprocess.run(
            [sys.executable, str(path)],
            env={**os.environ, **host.env, **env},
            capture_output=True,
            text=True,
            timeout=170,
        )

    return run
