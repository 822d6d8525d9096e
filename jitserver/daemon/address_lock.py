"""The daemon's hold on its address: a lock and a socket, which it creates again if they are removed."""

import contextlib
import logging
import os
import socket
from pathlib import Path
from typing import IO

from jitclient.core.file_lock import open_lock, try_lock
from jitclient.core.polling import Polling
from jitclient.errors import AddressTaken, DaemonSilent, DaemonUnavailable, SettingsError
from jitclient.session.launch import START_SECONDS
from jitclient.wire.address import Address
from jitserver.system import sd_notify

log = logging.getLogger(__name__)

# Maximum size of a lock file in bytes; a process id takes less, even in a file that was damaged.
_MAX_LOCK_BYTES = 100
# Time that a new daemon waits for another one that is draining or starts again.
_LOCK_SECONDS = START_SECONDS
_KEPT_LOCK = "JITSERVER_ADDRESS_LOCK"
"""Environment variable that has the descriptor of the lock while a daemon executes its program again."""


class HeldAddress:
    """An address that is held until this process exits, or until `release`. A socket opened by systemd needs no lock.

    A daemon that executes its program again keeps the lock meanwhile: a busy machine may take a minute for that, and a
    client could start another daemon, which would serve with devices that this one knows to have failed.

    Attributes:
        address: the address at which clients connect.
        is_ours: whether this process opened the socket.
    """

    def __init__(self, address: Address) -> None:
        """Acquire the address; clients cannot connect yet.

        Raises:
            AddressTaken: another daemon serves at the address.
            SettingsError: the lock file cannot be opened.
        """
        self._inherited = sd_notify.inherited_socket()
        self.is_ours = self._inherited is None
        self.address = address if self._inherited is None else Address(Path(self._inherited.getsockname()))
        self._lock = (_kept_lock(address) or _acquire_lock(address)) if self.is_ours else None
        self._file: os.stat_result | None = None

    def listen(self) -> socket.socket:
        """Return the listening socket.

        Raises:
            SettingsError: the socket cannot be opened.
        """
        if self._inherited is not None:
            return self._inherited
        try:
            listener = self.address.listen()
        except OSError as error:
            raise SettingsError(f"a daemon cannot listen at {self.address}: {error}") from error
        self._file = self.address.path.lstat()
        return listener

    def renew(self) -> socket.socket | None:
        """Create the lock and the socket again if they were removed; return the socket if it is new.

        Raises:
            AddressTaken: another daemon took the address first.
            SettingsError: the lock or the socket cannot be created.
            OSError: a file cannot be examined.
        """
        if self._lock is None:
            return None
        if not _is(os.fstat(self._lock.fileno()), self.address.lock_path):
            log.warning(
                "the lock file %s was removed or replaced. The daemon creates it again.", self.address.lock_path
            )
            lock = _locked_file(self.address)
            if lock is None:
                raise AddressTaken(f"another daemon has taken {self.address}")
            self._lock.close()
            self._lock = lock
        if os.path.lexists(self.address.path):
            return None
        log.warning("the socket %s was removed. The daemon creates it again.", self.address.path)
        return self.listen()

    def is_replaced(self) -> bool:
        """Return whether another process listens at the address, such as systemd after an installation of the units."""
        path = self.address.path
        return self._file is not None and os.path.lexists(path) and not _is(self._file, path)

    def remove_socket(self) -> None:
        """Remove the socket's file, unless it belongs to another process."""
        if self._file is not None and _is(self._file, self.address.path):
            self.address.path.unlink(missing_ok=True)

    def release(self) -> None:
        """Release the address for another daemon."""
        if self._lock is not None:
            self._lock.close()

    def keep(self) -> None:
        """Keep the lock for the program that this process executes next."""
        if self._lock is not None:
            kept = os.dup(self._lock.fileno())
            os.set_inheritable(kept, True)
            os.environ[_KEPT_LOCK] = str(kept)


def _is(file: os.stat_result, path: Path) -> bool:
    """Return whether a path refers to this file."""
    try:
        return os.path.samestat(file, path.lstat())
    except FileNotFoundError:
        return False


def _kept_lock(address: Address) -> IO[str] | None:
    """Return the lock of the address that this process held before it executed this program; None if it held none."""
    with contextlib.suppress(ValueError, OSError):  # a variable that another program has set
        descriptor = int(os.environ.pop(_KEPT_LOCK, ""))
        if _is(os.fstat(descriptor), address.lock_path):
            os.set_inheritable(descriptor, False)
            return os.fdopen(descriptor, "a+")
    return None


def _acquire_lock(address: Address) -> IO[str]:
    """Lock the address until this process exits, however it exits.

    Raises:
        AddressTaken: another daemon serves at the address, or does not release it.
        SettingsError: the lock file cannot be opened.
    """
    polling = Polling(_LOCK_SECONDS)
    while (lock := _locked_file(address)) is None:
        with contextlib.suppress(DaemonUnavailable, DaemonSilent):
            address.connect().close()
            raise AddressTaken(f"a daemon serves at {address} already")
        if not polling.pause():
            raise AddressTaken(f"another daemon holds {address} and does not release it")
    return lock


def _locked_file(address: Address) -> IO[str] | None:
    """Return the lock file, locked, with this process's id; None if another daemon has locked it.

    Raises:
        SettingsError: the file cannot be opened, or is not a lock file.
    """
    try:
        address.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = open_lock(address.lock_path)
    except OSError as error:
        raise SettingsError(f"a daemon cannot listen at {address}: {error}") from error
    if not try_lock(lock):
        lock.close()
        return None
    if os.fstat(lock.fileno()).st_size > _MAX_LOCK_BYTES:
        lock.close()
        raise SettingsError(f"a daemon cannot listen at {address}: {address.lock_path} is not a lock file of a daemon")
    with contextlib.suppress(OSError):  # on a full disk, the lock is still held
        os.ftruncate(lock.fileno(), 0)
        os.write(lock.fileno(), f"{os.getpid()}\n".encode())
    return lock
