"""The log file of a daemon without systemd: the file to which its standard error was redirected."""

import contextlib
import os
import stat
from pathlib import Path
from typing import Self

_MAX_BYTES = 5 << 20
_STDOUT, _STDERR = 1, 2


class LogFile:
    """A log file, which is limited to twice `max_bytes`: when it is full, it becomes the file `NAME.old.log`.

    Args:
        path: the file to which standard error writes.
        max_bytes: the size at which the file is replaced.
    """

    def __init__(self, path: Path, max_bytes: int = _MAX_BYTES) -> None:
        self._path = path
        self._max_bytes = max_bytes

    @classmethod
    def of_stderr(cls) -> Self | None:
        """Return the file of standard error; None if that is a terminal, a pipe or systemd's journal."""
        try:
            path = Path(os.readlink(f"/proc/self/fd/{_STDERR}"))
            is_file = stat.S_ISREG(os.fstat(_STDERR).st_mode) and os.path.samestat(os.fstat(_STDERR), path.stat())
        except OSError:
            return None
        return cls(path) if is_file else None

    def reopen(self) -> None:
        """Write to the file at the path from now on, for instance after a program moved the file to rotate logs."""
        # Without room on the disk, the old file stays in use.
        with contextlib.suppress(OSError):
            number = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            for standard in (_STDOUT, _STDERR):
                os.dup2(number, standard)
            os.close(number)

    def limit(self) -> None:
        """Begin a new file if the file is full."""
        with contextlib.suppress(OSError):
            if os.fstat(_STDERR).st_size > self._max_bytes:
                self._path.replace(self._path.with_name(f"{self._path.stem}.old.log"))
                self.reopen()
