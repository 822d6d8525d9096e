"""Compilations of this process's own jax, found again by later processes.

JAX compiles operations outside of served functions, such as a model's `init` and the jitted functions of packages, in
each process. The jax of a run and of the daemon keeps these executables in the cache's directory, under JAX's own keys.
JAX's configuration is unchanged: a cache that the user configures takes precedence at any time.

A file has the following layout. It is written under another name first, so that no reader sees a part of it, and a
damaged file counts as missing:

    Bytes:     0 .. 15   16 .. 23                  24 ..
    Content:   digest    seconds of compilation    executable, as JAX compresses it
                         (big-endian double)

The digest covers the key and all that follows the digest, so that a file under another name counts as damaged, too.
"""

import contextlib
import os
import struct
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from jitclient.core.cpu import cpu_features
from jitclient.core.digests import digest
from jitclient.core.directories import compilations_directory, environment_directory, trim
from jitclient.errors import SettingsError
from jitclient.jaxside import internals, interop

_DIGEST_BYTES = 16
_SECONDS = struct.Struct(">d")
_MAX_BYTES = 1 << 30
"""Maximum size in bytes of the directory where no daemon sets one."""
_PUTS_PER_TRIM = 256


class _ThreadState(threading.local):
    found = 0
    """Compilations that this thread has found."""
    seconds = 0.0
    """Seconds of this thread's current compilation, or seconds that it took in the process that stored it."""


_thread_state = _ThreadState()


class CompilationCache:
    """Bounded cache of executables in a directory that other processes use at the same time.

    No method raises an exception: without a usable directory, nothing is found and nothing is kept.

    Args:
        directory: The directory; created when a compilation is stored.
        min_seconds: Minimum seconds of a compilation that is stored.
        max_bytes: Maximum size of the directory, to which it is trimmed now and then.
        may_find: Returns whether a compilation may be found at the moment.
    """

    def __init__(
        self,
        directory: Path,
        min_seconds: float = 0.0,
        max_bytes: int = _MAX_BYTES,
        may_find: Callable[[], bool] = lambda: True,
    ) -> None:
        self.directory = directory
        self.found = 0
        """Number of compilations that this process has found."""
        self.compiled = 0
        """Number of compilations that this process has made."""
        self.saved_seconds = 0.0
        """Seconds that the found compilations took when they were made."""
        self._min_seconds = min_seconds
        self._max_bytes = max_bytes
        self._may_find = may_find
        self._puts = 0
        self._lock = threading.Lock()

    def get(self, key: str) -> bytes | None:
        """Return the stored bytes of a key; None if the file is missing or damaged, or if nothing may be found."""
        if not self._may_find():
            return None
        try:
            path = self._path(key)
            data = path.read_bytes()
            if _digest(path, memoryview(data)[_DIGEST_BYTES:]) != data[:_DIGEST_BYTES]:
                return None
            (_thread_state.seconds,) = _SECONDS.unpack_from(data, _DIGEST_BYTES)
        except (OSError, struct.error):
            return None
        with contextlib.suppress(OSError):  # a read-only directory
            os.utime(path)  # so that `trim` deletes what was not used for the longest time
        return data[_DIGEST_BYTES + _SECONDS.size :]

    def put(self, key: str, value: bytes) -> None:
        """Store bytes under a key."""
        path = self._path(key)
        data = _SECONDS.pack(_thread_state.seconds) + value
        with contextlib.suppress(OSError):
            self.directory.mkdir(mode=0o700, exist_ok=True)
            _write(path, _digest(path, data) + data)
        with self._lock:
            self._puts += 1
            must_trim = self._puts % _PUTS_PER_TRIM == 1
        if must_trim:
            trim(self.directory, self._max_bytes)

    def count_found(self) -> None:
        """Count a compilation that `get` has just found for this thread."""
        _thread_state.found += 1
        with self._lock:
            self.found += 1
            self.saved_seconds += _thread_state.seconds

    def count_compiled(self, seconds: float) -> bool:
        """Count a compilation that this thread has just made; return whether it is worth storing."""
        _thread_state.seconds = seconds
        with self._lock:
            self.compiled += 1
        return seconds >= self._min_seconds

    def _path(self, key: str) -> Path:
        # JAX's key does not say which instructions the processor has.
        return self.directory / f"{cpu_features()}-{key}"


_own: CompilationCache | None = None
"""The cache of this process, once jax uses it."""


def own() -> CompilationCache | None:
    """Return the cache that this process's jax uses; None if it uses none of jitserver's."""
    return _own


def found_by_thread() -> int:
    """Return the number of compilations that the current thread has found."""
    return _thread_state.found


def use(cache: CompilationCache) -> None:
    """Make this process's jax, which is imported, find and keep compilations in a cache."""
    global _own
    if internals.use_compilation_cache(cache):
        _own = cache


def keep_compilations() -> None:
    """Make this process's jax use the user's cache, immediately or when the program imports jax."""
    interop.when_loaded(_use_users_cache)


def _use_users_cache() -> None:
    if _own is None:
        # Without a directory, each process compiles.
        with contextlib.suppress(OSError, SettingsError):
            use(CompilationCache(compilations_directory(environment_directory()), may_find=_may_find))


def _may_find() -> bool:
    """Return whether the program would not notice that XLA compiles nothing.

    XLA dumps only what it compiles, and its CPU runtime serializes executables that it has loaded without their code.
    """
    serializes = "jax.experimental.serialize_executable" in sys.modules
    return not serializes and "--xla_dump" not in os.environ.get("XLA_FLAGS", "")


def _digest(path: Path, data: bytes | memoryview) -> bytes:
    return digest(digest(os.fsencode(path.name)) + digest(data), _DIGEST_BYTES)


def _write(path: Path, data: bytes) -> None:
    number, name = tempfile.mkstemp(dir=path.parent)
    try:
        with open(number, "wb") as file:
            file.write(data)
        os.rename(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
