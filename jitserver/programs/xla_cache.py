"""JAX's own cache of compilations by program text, in a directory whose size the daemon limits."""

import contextlib
import os
import threading
from pathlib import Path

import jax

MIN_SECONDS = 0.3
"""Minimum seconds of a compilation that JAX's cache stores.

All programs are in the daemon's cache already, so JAX's cache is for compilations that are worth finding by text alone.
"""

_FOUND = "/jax/compilation_cache/cache_hits"


class _ThreadState(threading.local):
    found = 0


_thread_state = _ThreadState()


def use_directory(directory: Path, min_seconds: float = MIN_SECONDS) -> None:
    """Configure JAX to cache compilations that take at least `min_seconds` seconds in a directory."""
    # Ignore errors: JAX tries again when it needs the directory, and warns on failure.
    with contextlib.suppress(OSError):
        directory.mkdir(mode=0o700, exist_ok=True)
    if os.fsencode(directory).decode(errors="replace") != str(directory):
        # XLA accepts only paths that survive this round trip.
        return
    jax.config.update("jax_compilation_cache_dir", str(directory))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", min_seconds)

    def listener(event: str, **_: object) -> None:
        if event == _FOUND:
            _thread_state.found += 1

    jax.monitoring.register_event_listener(listener)


def hits_of_thread() -> int:
    """Return the number of compilations that this thread has found in the cache."""
    return _thread_state.found
