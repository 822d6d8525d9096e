"""Locks on files. The kernel releases them when their process closes the file or exits, however it exits."""

import fcntl
import os
from pathlib import Path
from typing import IO, Any

from jitclient.errors import DaemonUnavailable


def open_lock(path: Path, mode: str = "a+") -> IO[str]:
    """Open a lock file, without following a symbolic link and without waiting for a pipe.

    In a shared directory, a link may be another user's.

    Raises:
        DaemonUnavailable: the file cannot be opened.
    """
    try:
        # The path of a socket in it need not be UTF-8.
        return open(path, mode, encoding="utf-8", errors="surrogateescape", opener=_opened)
    except OSError as error:
        raise DaemonUnavailable(f"cannot open the lock file {path}: {error.strerror or error}") from error


def _opened(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)


def lock(file: IO[Any] | int) -> None:
    """Lock a file; wait while another process holds its lock."""
    fcntl.flock(file, fcntl.LOCK_EX)


def try_lock(file: IO[Any], shared: bool = False) -> bool:
    """Lock a file without waiting; return False if another process holds its lock. Shared locks exclude only others."""
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
