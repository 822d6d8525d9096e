"""JAX's own cache of compilations by program text, in a folder whose size the daemon limits."""

import contextlib
import os
import threading
from pathlib import Path

import jax

LEAST_SECONDS = 0.3
"""The daemon has all programs in a cache of its own: this one is for what is worth finding by its text alone."""

_FOUND = "/jax/compilation_cache/cache_hits"


class _Here(threading.local):
    found = 0


_here = _Here()


def keep_in(folder: Path, least_seconds: float = LEAST_SECONDS) -> None:
    """Makes JAX keep compilations of so many seconds in a folder."""
    with contextlib.suppress(OSError):  # JAX tries again when it needs the folder, and warns if it cannot
        folder.mkdir(mode=0o700, exist_ok=True)
    if os.fsencode(folder).decode(errors="replace") != str(folder):
        return  # XLA takes no other paths
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", least_seconds)

    def listener(event: str, **_: object) -> None:
        if event == _FOUND:
            _here.found += 1

    jax.monitoring.register_event_listener(listener)


def found_here() -> int:
    """How many compilations this thread has found in the cache."""
    return _here.found
