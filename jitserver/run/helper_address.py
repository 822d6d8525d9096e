"""Address of a helper: a socket in the user's own directory, beside the daemon's, and the start of the helper there."""

import atexit
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from jitclient.core.directories import runtime_directory
from jitclient.wire.address import Address, peer
from jitserver.run import process_facts
from jitserver.run.request import own_umask

_PROGRAM = (
    "import sys; sys.flags.safe_path or sys.path.pop(0); from jitserver.run.helper import main; main(*sys.argv[1:])"
)
HAS_SEED = "has-seed"
"""Argument of a helper whose hash seed is not the user's."""
HAS_TERMINAL = "has-terminal"
"""Argument of a helper whose imports see a terminal."""

_CONNECT_SECONDS = 0.5


def of_key(key: str) -> Address:
    """Return the address of the helper with a key.

    Raises:
        OSError: there is no directory that only this user can enter.
    """
    return Address(runtime_directory() / f"run-{key}.sock")


def key_of(path: str) -> str:
    """Return the key of the helper at a path."""
    return Path(path).stem.removeprefix("run-")


def connect(address: Address) -> socket.socket:
    """Connect to the helper at an address.

    Raises:
        DaemonError: there is no helper, or it belongs to another user.
    """
    return address.connect(_CONNECT_SECONDS)


def kill(sock: socket.socket) -> None:
    """Kill the helper at the other end, which hangs.

    Otherwise the helper would keep the file descriptors that it was sent, such as a pipe that another process reads
    until all processes have closed it.
    """
    pid = peer(sock).pid
    # The process id is 0 if the helper is in another container.
    if pid > 0:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def start_at_exit(address: Address, options: Sequence[str], terminal: bool) -> None:
    """Start a helper when this process exits, so that the start takes no time from the running program."""
    environment, cwd, pid, umask = process_facts.variables(), os.getcwd(), os.getpid(), own_umask()

    def start() -> None:
        if os.getpid() == pid:
            os.umask(umask)  # that of the program is of no concern to a helper
            _start(address, options, terminal, environment, cwd)

    atexit.register(start)


def _start(address: Address, options: Sequence[str], terminal: bool, environment: dict[bytes, bytes], cwd: str) -> None:
    # Imported late: most commands need no helper.
    from jitserver.run import helpers, history

    if helpers.is_memory_short():
        return
    words = [os.fspath(address.path), *([HAS_TERMINAL] if terminal else [])]
    seed = {} if b"PYTHONHASHSEED" in environment else {b"PYTHONHASHSEED": b"%d" % history.hash_seed()}
    # Without a helper, the next command is as slow as this one.
    with contextlib.suppress(OSError):
        os.chdir(cwd)  # for relative entries of PYTHONPATH
        with open(os.devnull, "rb") as nothing, open(log_of(address), "ab", opener=_open_private) as log:
            os.posix_spawn(
                sys.executable,
                [sys.executable, *options, "-c", _PROGRAM, *words, *([HAS_SEED] if seed else [])],
                {**environment, **seed},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, nothing.fileno(), 0),
                    (os.POSIX_SPAWN_DUP2, log.fileno(), 1),
                    (os.POSIX_SPAWN_DUP2, log.fileno(), 2),
                ],
                setsid=True,
                setsigmask=(),
            )


def log_of(address: Address) -> Path:
    """Return the path of the file that gets the helper's output."""
    return address.path.with_suffix(".log")


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)


def address_of(path: str) -> Address:
    """Return the address of the helper at a path."""
    return Address(Path(path))
