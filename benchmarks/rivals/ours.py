"""jitserver itself, through its public names only."""

import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.processes import environment, output, running
from benchmarks.result import OURS
from benchmarks.rivals import Caller

NAME = OURS
NEEDS = ("jax",)
_NOTE_SECONDS = 60.0


@contextlib.contextmanager
def serve(folder: Path, *options: str) -> Iterator[dict[str, str]]:
    """A daemon of its own, with nothing in its cache but what one on the same folder left there."""
    path = folder / "d.sock"
    arguments = ["-P", "-m", "jitserver", "serve", "--address", f"unix:{path}", *options]
    with running(arguments, environment(folder), folder, lambda: answers(path)):
        yield {"JITSERVER_ADDRESS": f"unix:{path}"}


@contextlib.contextmanager
def connect() -> Iterator[Caller]:
    """A client, which JITSERVER_ADDRESS tells where the daemon is."""
    import jitclient

    yield Caller(jitclient.jit, jitclient.device_put, jitclient.block_until_ready)


def push(script: Path, env: dict[str, str], folder: Path) -> None:
    """Upload what a script has used to the lab's cache. The daemon notes that when it is quiet, after the script."""
    end = time.monotonic() + _NOTE_SECONDS
    while True:
        try:
            _share("push", script, env, folder)
            return
        except RuntimeError:
            if time.monotonic() > end:
                raise
        time.sleep(0.5)


def pull(script: Path, env: dict[str, str], folder: Path) -> None:
    """Download what a script has used from the lab's cache."""
    _share("pull", script, env, folder)


def _share(verb: str, script: Path, env: dict[str, str], folder: Path) -> None:
    output(["-P", "-m", "jitserver", "share", verb, script.name], env, folder)


def answers(path: Path) -> bool:
    """Whether something listens at a socket."""
    with socket.socket(socket.AF_UNIX) as sock:
        return sock.connect_ex(str(path)) == 0
