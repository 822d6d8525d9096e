"""The daemon's place: the address that it holds, by a lock and a socket."""

import contextlib
import fcntl
import os
import socket
import time
from pathlib import Path
from typing import IO

from jitclient.errors import AddressTaken, DaemonSilent, DaemonUnavailable
from jitclient.wire.address import Address
from jitserver.platform import sd_notify

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
        """
        self._inherited = sd_notify.inherited_socket()
        self.is_ours = self._inherited is None
        self.address = address if self._inherited is None else Address(Path(self._inherited.getsockname()))
        self._lock = _take_lock(address) if self.is_ours else None
        self._file: os.stat_result | None = None

    def listen(self) -> socket.socket:
        """The listening socket."""
        listener = self._inherited or self.address.listen()
        self._file = self.address.path.stat() if self.is_ours else None
        return listener

    def close_door(self) -> None:
        """Removes the socket's file, unless it is another's: since an installation, systemd may listen there."""
        path = self.address.path
        if self._file is not None and path.exists() and os.path.samestat(path.stat(), self._file):
            path.unlink(missing_ok=True)

    def release(self) -> None:
        """Lets another daemon have the address."""
        if self._lock is not None:
            self._lock.close()


def _take_lock(address: Address) -> IO[str]:
    """Locks the address for as long as this process lives, however it ends."""
    address.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = open(address.lock_path, "a+")  # noqa: SIM115
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with contextlib.suppress(DaemonUnavailable, DaemonSilent):
                address.connect().close()
                raise AddressTaken(f"a daemon serves at {address} already") from None
            if time.monotonic() > deadline:
                raise AddressTaken(f"another daemon holds {address} and does not release it") from None
            time.sleep(0.05)
        else:
            lock.seek(0)
            lock.truncate()
            lock.write(f"{os.getpid()}\n")
            lock.flush()
            return lock
