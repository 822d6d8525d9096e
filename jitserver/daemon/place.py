"""The daemon's place: the address that it holds, by a lock and a socket, and makes again where someone removes them."""

import contextlib
import fcntl
import logging
import os
import socket
import time
from pathlib import Path
from typing import IO

from jitclient.errors import AddressTaken, DaemonSilent, DaemonUnavailable, SettingsError
from jitclient.wire.address import Address, open_lock
from jitserver.system import sd_notify

log = logging.getLogger(__name__)

_LONGEST_LOCK = 100  # bytes; a process id takes less, also in a file that was damaged
_LOCK_SECONDS = 60.0  # how long a new daemon waits for one that is draining


class Place:
    """An address for as long as this process lives, or until `release`. A socket of systemd's needs no lock.

    Attributes:
        address: where clients connect.
        is_ours: whether this process opened the socket.
    """

    def __init__(self, address: Address) -> None:
        """Takes the address; clients cannot connect yet.

        Raises:
            AddressTaken: another daemon serves there.
            SettingsError: its lock cannot be opened.
        """
        self._inherited = sd_notify.inherited_socket()
        self.is_ours = self._inherited is None
        self.address = address if self._inherited is None else Address(Path(self._inherited.getsockname()))
        self._lock = _take_lock(address) if self.is_ours else None
        self._file: os.stat_result | None = None

    def listen(self) -> socket.socket:
        """The listening socket.

        Raises:
            SettingsError: there can be none.
        """
        if self._inherited is not None:
            return self._inherited
        try:
            listener = self.address.listen()
        except OSError as error:
            raise SettingsError(f"no daemon can serve at {self.address}: {error}") from error
        self._file = self.address.path.lstat()
        return listener

    def renew(self) -> socket.socket | None:
        """Makes the lock and the socket again if they were removed; returns the socket if it is a new one.

        Raises:
            AddressTaken: another daemon was faster.
            SettingsError, OSError: they cannot be made.
        """
        if self._lock is None:
            return None
        if not _is(os.fstat(self._lock.fileno()), self.address.lock_path):
            log.warning("%s was removed or replaced", self.address.lock_path)
            lock = _locked(self.address)
            if lock is None:
                raise AddressTaken(f"another daemon has taken {self.address}")
            self._lock.close()
            self._lock = lock
        if os.path.lexists(self.address.path):
            return None
        log.warning("%s was removed: listening there again", self.address.path)
        return self.listen()

    def is_replaced(self) -> bool:
        """Whether another process listens at the address: since an installation, systemd may."""
        path = self.address.path
        return self._file is not None and os.path.lexists(path) and not _is(self._file, path)

    def close_door(self) -> None:
        """Removes the socket's file, unless it is another's."""
        if self._file is not None and _is(self._file, self.address.path):
            self.address.path.unlink(missing_ok=True)

    def release(self) -> None:
        """Lets another daemon have the address."""
        if self._lock is not None:
            self._lock.close()


def _is(file: os.stat_result, path: Path) -> bool:
    """Whether the file is at a path."""
    try:
        return os.path.samestat(file, path.lstat())
    except FileNotFoundError:
        return False


def _take_lock(address: Address) -> IO[str]:
    """Locks the address for as long as this process lives, however it ends."""
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        lock = _locked(address)
        if lock is not None:
            return lock
        with contextlib.suppress(DaemonUnavailable, DaemonSilent):
            address.connect().close()
            raise AddressTaken(f"a daemon serves at {address} already")
        if time.monotonic() > deadline:
            raise AddressTaken(f"another daemon holds {address} and does not release it")
        time.sleep(0.05)


def _locked(address: Address) -> IO[str] | None:
    """The file of the lock with our process id, locked; None if another daemon has it."""
    try:
        address.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = open_lock(address.lock_path)
    except OSError as error:
        raise SettingsError(f"no daemon can serve at {address}: {error}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    if os.fstat(lock.fileno()).st_size > _LONGEST_LOCK:
        lock.close()
        raise SettingsError(f"no daemon can serve at {address}: {address.lock_path} is not the lock of one")
    with contextlib.suppress(OSError):  # on a full disk, the lock holds all the same
        os.ftruncate(lock.fileno(), 0)
        os.write(lock.fileno(), f"{os.getpid()}\n".encode())
    return lock
