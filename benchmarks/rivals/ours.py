"""jitserver itself, through its public names only."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

from benchmarks.processes import environment, running
from benchmarks.result import OURS
from benchmarks.rivals import Caller

NAME = OURS
NEEDS = ("jax",)


@contextlib.contextmanager
def serve(folder: Path, *options: str, **env: str) -> Iterator[dict[str, str]]:
    """A daemon of its own, with nothing in its cache but what one on the same folder left there."""
    path = folder / "d.sock"
    arguments = ["-P", "-m", "jitserver", "serve", "--address", f"unix:{path}", *options]
    with running(arguments, environment(folder, **env), folder, lambda: answers(path)):
        yield {"JITSERVER_ADDRESS": f"unix:{path}"}


@contextlib.contextmanager
def connect() -> Iterator[Caller]:
    """A client, which JITSERVER_ADDRESS tells where the daemon is."""
    import jitclient

    yield Caller(jitclient.jit, jitclient.device_put, jitclient.block_until_ready)


def answers(path: Path) -> bool:
    """Whether something listens at a socket."""
    with socket.socket(socket.AF_UNIX) as sock:
        return sock.connect_ex(str(path)) == 0
