"""Storage of arrays in files, one array in each."""

import os
import secrets
import threading
import time
import weakref
import zlib
from pathlib import Path
from typing import Any

from jitclient.wire.array_transport import allocate, nbytes_of
from jitserver.daemon.checkpoint.manifests import StoredArray
from jitserver.programs.devices import device_arrays
from jitserver.store.checked_files import Corrupt

_CHUNK_BYTES = 16 << 20


class ArrayStore:
    """A directory of array files. Thread-safe."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._loaded: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()

    def write(self, array: Any, deadline: float) -> StoredArray:
        """Write an array after it is computed; give up at `deadline` (by `time.monotonic`).

        Raises:
            OSError: there is no room, or (TimeoutError) no time. No file remains.
            Exception: the array was deleted, its computation failed, or its sharding cannot be serialized.
        """
        data, checksum = device_arrays.to_bytes(array, deadline), 0
        spec = device_arrays.spec_of(array)
        path = self._directory / secrets.token_hex(12)
        try:
            with open(path, "xb", opener=_open_private) as file:
                for begin in range(0, len(data), _CHUNK_BYTES):
                    if time.monotonic() > deadline:
                        raise TimeoutError("no time left")
                    part = data[begin : begin + _CHUNK_BYTES]
                    file.write(part)
                    checksum = zlib.crc32(part, checksum)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return StoredArray(path.name, checksum, spec, array.committed, device_arrays.is_shared(array))

    def load(self, stored: StoredArray) -> Any:
        """Return the array of a file: the same object for all callers, as long as it is in use.

        Raises:
            Exception: the file is damaged, or the array's sharding needs more devices than there are.
        """
        array = self.loaded(stored)
        if array is not None:
            return array
        array = device_arrays.from_bytes(self._read(stored), stored.spec, stored.committed)
        if stored.shared:
            device_arrays.share(array)
        with self._lock:
            return self._loaded.setdefault(stored.file, array)  # another thread may have been faster

    def loaded(self, stored: StoredArray) -> Any:
        """Return the array of a file if it is in memory, else None."""
        return self._loaded.get(stored.file)

    def remove(self, stored: StoredArray) -> None:
        """Remove the file of an array."""
        (self._directory / stored.file).unlink(missing_ok=True)

    def _read(self, stored: StoredArray) -> Any:
        raw = allocate(nbytes_of(stored.spec))
        with open(self._directory / stored.file, "rb") as file:
            stat = os.fstat(file.fileno())
            if stat.st_uid != os.getuid():
                raise Corrupt("the file belongs to another user")
            file.readinto(raw.data)
        if stat.st_size != raw.nbytes or zlib.crc32(raw.data) != stored.checksum:
            raise Corrupt(f"the file of {stored.spec.dtype}{list(stored.spec.shape)} is damaged (wrong checksum)")
        return raw


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
