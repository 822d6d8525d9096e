"""Compilations of this process's own jax, found again by later processes.

JAX compiles operations outside of served functions, such as a model's `init` and the jitted functions of packages, in
each process. This cache keeps the executables in the cache's directory; `jaxside/compiler.py` has the hook in JAX.

A file has the following layout. It is written under another name first, so that no reader sees a part of it, and a
damaged file counts as missing:

    Bytes:     0 .. 15   16 .. 23                  24 ..
    Content:   digest    seconds of compilation    executable, as XLA serializes it
                         (big-endian double)

The digest covers the key and all that follows the digest, so that a file under another name counts as damaged, too.
"""

import contextlib
import os
import struct
import threading
from os import close, fstat, mkdir, rename, unlink, urandom, utime  # programs may patch `os` and `open`
from os import open as open_fd
from os import read as read_fd
from os import write as write_fd
from pathlib import Path

from jitclient.core.clock import monotonic
from jitclient.core.digests import digest
from jitclient.core.directories import compilations_directory, environment_directory, trim, tuning_directory
from jitclient.core.settings import settings
from jitclient.errors import SettingsError
from jitclient.jaxside import compiler, interop
from jitclient.jaxside.compiler import JAXS_OWN_CACHE, Remade

_DIGEST_BYTES = 16
_SECONDS = struct.Struct(">d")
_HEADER_BYTES = _DIGEST_BYTES + _SECONDS.size
_MAX_BYTES = 1 << 30
"""Maximum size in bytes of the directory where no daemon sets one."""
_MAX_FILE_BYTES = 32 << 20
_TRIMMING_KEYS = "00"
"""First digits of the keys whose `put` also trims: one in 256, in all processes together."""
_RETRY_SECONDS = 30.0
"""Seconds without another attempt after a file could not be written."""


class _FoundHere(threading.local):
    found = 0
    """Compilations that this thread has found."""
    saved: float | None = None
    """Seconds that the latest of them took when it was made, until `take_saved` is called."""


_thread_state = _FoundHere()


class CompilationCache:
    """Bounded cache of executables in a directory that other processes use at the same time.

    The cache has no locks: a signal handler may compile while this thread is in here, and another thread may fork.

    Args:
        directory: The directory; created when a compilation is stored.
        min_seconds: Minimum seconds of a compilation that is stored.
        max_bytes: Maximum size of the directory, to which it is trimmed now and then.
    """

    def __init__(self, directory: Path, min_seconds: float = 0.0, max_bytes: int = _MAX_BYTES) -> None:
        self.directory = directory
        self._tuning = str(tuning_directory(directory.parent))
        self.found = 0
        """Number of compilations that this process has found."""
        self.saved_seconds = 0.0
        """Seconds that the found compilations took when they were made, without those of finding them."""
        self.compiled = 0
        """Number of compilations that this process has made, and could have found."""
        self.compiled_seconds = 0.0
        self.remade: dict[Remade, tuple[int, float]] = {}
        """Number and seconds of the compilations that no cache may have, so that each process makes them."""
        self._min_seconds = min_seconds
        self._max_bytes = max_bytes
        self._retry_at = 0.0

    def get(self, key: str) -> tuple[bytes, float] | None:
        """Return the executable of a key and the seconds of its compilation; None if the file is damaged.

        Raises:
            OSError: The file is missing, or cannot be read.
        """
        path = f"{self.directory}/{key}"
        number = open_fd(path, os.O_RDONLY | os.O_NONBLOCK)  # another kind of file, such as a pipe, must not block
        try:
            size = fstat(number).st_size
            data = read_fd(number, size) if _HEADER_BYTES <= size <= _MAX_FILE_BYTES else b""
        finally:
            close(number)
        if len(data) < _HEADER_BYTES or _digest(key, memoryview(data)[_DIGEST_BYTES:]) != data[:_DIGEST_BYTES]:
            return None
        return data[_HEADER_BYTES:], _SECONDS.unpack_from(data, _DIGEST_BYTES)[0]

    def mark_used(self, key: str) -> None:
        """Make `trim` delete the file of a key after those that were not used for a longer time.

        Raises:
            OSError: The directory is read-only, for example.
        """
        utime(f"{self.directory}/{key}")

    def wants(self, seconds: float) -> bool:
        """Return whether a compilation that took so many seconds is worth storing, and can be stored."""
        return seconds >= self._min_seconds and monotonic() >= self._retry_at

    def put(self, key: str, executable: bytes, seconds: float) -> None:
        """Store an executable under a key.

        Raises:
            OSError: The file cannot be written.
        """
        data = _SECONDS.pack(seconds) + executable
        if len(data) > _MAX_FILE_BYTES - _DIGEST_BYTES:
            return
        path = f"{self.directory}/{key}"
        written = f"{path}.{urandom(6).hex()}"
        retry_at, self._retry_at = self._retry_at, monotonic() + _RETRY_SECONDS
        try:
            with contextlib.suppress(FileExistsError):
                mkdir(self.directory, 0o700)
            _write(written, _digest(key, data) + data)
            self._retry_at = retry_at
            rename(written, path)
        except BaseException:
            with contextlib.suppress(OSError):
                unlink(written)
            raise
        if key.startswith(_TRIMMING_KEYS):
            trim(self.directory, self._max_bytes)
            trim(self._tuning, self._max_bytes)

    def tuning_directory(self) -> str:
        """Return the directory for what XLA measures on a GPU, which exists.

        Raises:
            OSError: It cannot be made.
        """
        with contextlib.suppress(FileExistsError):
            mkdir(self._tuning, 0o700)
        return self._tuning

    def count_found(self, seconds: float, finding_seconds: float) -> None:
        """Count a compilation that this thread has just found."""
        _thread_state.found += 1
        _thread_state.saved = seconds
        self.found += 1
        self.saved_seconds += seconds - finding_seconds

    @property
    def excluded(self) -> dict[str, tuple[int, float]]:
        """Number and seconds of the compilations that no cache may have, by the reason."""
        found: dict[str, tuple[int, float]] = {}
        for remade, (times, seconds) in dict(self.remade).items():
            before = found.get(remade.why, (0, 0.0))
            found[remade.why] = before[0] + times, before[1] + seconds
        return found

    def count_compiled(self, seconds: float, remade: Remade | None) -> None:
        """Count a compilation that this thread has just made; `remade` if no cache may have it."""
        _thread_state.saved = None
        if remade is not None:
            times, before = self.remade.get(remade, (0, 0.0))
            self.remade[remade] = times + 1, before + seconds
        else:
            self.compiled += 1
            self.compiled_seconds += seconds


def made_in_each_run() -> list[tuple[Remade, int, float]]:
    """Return the compilations of this process that later processes make again, with their number and seconds.

    Those that take longest come first. JAX's own cache may have what it is asked for.
    """
    found = () if _own is None else dict(_own.remade).items()
    remade = [(each, times, seconds) for each, (times, seconds) in found if each.why != JAXS_OWN_CACHE]
    return sorted(remade, key=lambda each: -each[2])


_own: CompilationCache | None = None
"""The cache of this process, once jax uses it."""
_is_requested = False
"""Whether jax is to use the user's cache, immediately or when the program imports it."""


def own() -> CompilationCache | None:
    """Return the cache that this process's jax uses; None if it uses none of jitserver's."""
    return _own


def found_by_thread() -> int:
    """Return the number of compilations that the current thread has found."""
    return _thread_state.found


def take_saved() -> float | None:
    """Return the seconds that this thread's latest compilation took when it was made, if it was found; None if asked
    before.
    """
    saved, _thread_state.saved = _thread_state.saved, None
    return saved


def use(cache: CompilationCache, by_text: bool = False) -> None:
    """Make this process's jax, which is imported, find and keep compilations in a cache; see `compiler.use`."""
    global _own
    if compiler.use(cache, by_text):
        _own = cache


def keep_compilations() -> None:
    """Make this process's jax use the user's cache, immediately or when the program imports jax.

    Raises:
        SettingsError: JITSERVER_CLIENT_CACHE has an invalid value.
    """
    global _is_requested
    if not _is_requested and settings().client_cache:
        _is_requested = True
        interop.when_loaded(_use_users_cache)


def _use_users_cache() -> None:
    if _own is None:
        # Without a directory, each process compiles.
        with contextlib.suppress(OSError, SettingsError):
            use(CompilationCache(compilations_directory(environment_directory())))


def _digest(key: str, data: bytes | memoryview) -> bytes:
    return digest(digest(key.encode()) + digest(data), _DIGEST_BYTES)


def _write(path: str, data: bytes) -> None:
    number = open_fd(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[write_fd(number, rest) :]
    finally:
        close(number)
