"""JAX's own cache of compilations by program text, in a directory whose size the daemon limits."""

import contextlib
import os
import threading
from pathlib import Path

import jax

LEAST_SECONDS = 0.3
"""Minimum seconds of a compilation that JAX's cache stores.

All programs are in the daemon's cache already, so JAX's cache is for compilations that are worth finding by text alone.
"""

_FOUND = "/jax/compilation_cache/cache_hits"


class _Here(threading.local):
    found = 0


_here = _Here()


def keep_in(folder: Path, least_seconds: float = LEAST_SECONDS) -> None:
    """Configure JAX to cache compilations that take at least `least_seconds` seconds in a directory."""
    # Ignore errors: JAX tries again when it needs the directory, and warns on failure.
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
    if os.fsencode(folder).decode(errors="replace") != str(folder):
        # XLA accepts only paths that survive this round trip.
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", least_seconds)

    def listener(event: str, **_: object) -> None:
        if event == _FOUND:
            _here.found += 1

    jax.monitoring.register_event_listener(listener)


def found_here() -> int:
    """Return the number of compilations that this thread has found in the cache."""
    return _here.found
