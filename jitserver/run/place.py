"""Where a helper answers, a socket in the user's own folder beside the daemon's; and how it comes to be there."""

import atexit
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from jitclient.wire.address import Address, peer, runtime_folder
from jitserver.run import fingerprint

_PROGRAM = (
    "import sys; sys.flags.safe_path or sys.path.pop(0); from jitserver.run.helper import main; main(*sys.argv[1:])"
)
HAS_SEED = "has-seed"
"""The second word for a helper whose hash seed is not its user's."""

_CONNECT_SECONDS = 0.5


def of(key: str) -> Address:
    """The place of the helper with a key.

    Raises:
        OSError: there is no folder that only this user can enter.
    """
    return Address(runtime_folder() / f"run-{key}.sock")


def connect(place: Address) -> socket.socket:
    """Connect to the helper there.

    Raises:
        DaemonError: there is none, or it belongs to another user.
    """
    return place.connect(_CONNECT_SECONDS)


def end(sock: socket.socket) -> None:
    """End the helper at the other end, which hangs: it would keep the descriptors that it was sent, such as a pipe from
    which another process reads until all have closed it.
    """
    pid = peer(sock).pid
    if pid > 0:  # else it is in another container
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def start_at_the_end(place: Address, options: Sequence[str]) -> None:
    """Start a helper there when this process ends, so that it takes no time from the program that runs until then."""
    environment, cwd, pid = fingerprint.variables(), os.getcwd(), os.getpid()

    def start() -> None:
        if os.getpid() == pid:
            _start(place, options, environment, cwd)

    atexit.register(start)


def _start(place: Address, options: Sequence[str], environment: dict[bytes, bytes], cwd: str) -> None:
    from jitserver.run import history  # now: most commands need no helper

    seed = {} if b"PYTHONHASHSEED" in environment else {b"PYTHONHASHSEED": b"%d" % history.hash_seed()}
    with contextlib.suppress(OSError):  # the next command is as slow as this one
        os.chdir(cwd)  # what is relative in PYTHONPATH
        with open(os.devnull, "rb") as nothing, open(log_of(place), "ab", opener=_private) as log:
            os.posix_spawn(
                sys.executable,
                [sys.executable, *options, "-c", _PROGRAM, os.fspath(place.path), *([HAS_SEED] if seed else [])],
                {**environment, **seed},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, nothing.fileno(), 0),
                    (os.POSIX_SPAWN_DUP2, log.fileno(), 1),
                    (os.POSIX_SPAWN_DUP2, log.fileno(), 2),
                ],
                setsid=True,
                setsigmask=(),
            )


def log_of(place: Address) -> Path:
    """The file of what the helper there prints."""
    return place.path.with_suffix(".log")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)


def address_of(path: str) -> Address:
    """The place at a path."""
    return Address(Path(path))
