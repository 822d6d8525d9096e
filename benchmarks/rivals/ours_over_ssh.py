"""jitserver with the address of another machine: an sshd on loopback."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from benchmarks.processes import environment
from benchmarks.result import OURS
from benchmarks.rivals import Caller, ours
from benchmarks.sshd import SSHD, Host

NAME = OURS
NEEDS = ("jax",)
PROGRAMS = {"sshd": SSHD}


@contextlib.contextmanager
def serve(folder: Path) -> Iterator[dict[str, str]]:
    """A daemon of its own, and an sshd behind which clients find it."""
    with ours.serve(folder) as there:
        (folder / "host").mkdir()
        host = Host(folder / "host", {**environment(folder), **there})
        try:
            yield host.env
        finally:
            host.close()


def connect() -> contextlib.AbstractContextManager[Caller]:
    """A client, which JITSERVER_ADDRESS tells where the daemon is."""
    return ours.connect()
