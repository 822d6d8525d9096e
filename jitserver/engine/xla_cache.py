"""Compilations by the text of their programs: JAX's own cache on the disk, in a folder of ours, which we bound."""

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

import jax

_LEAST_SECONDS = 0.3
"""A shorter compilation is no quicker to find than to do again."""

_FOUND = "/jax/compilation_cache/cache_hits"


class _Here(threading.local):
    found = 0


_here = _Here()


def keep_in(folder: Path, on_hit: Callable[[], None]) -> None:
    """Has JAX keep long compilations there, and tell when one is found."""
    with contextlib.suppress(OSError):  # JAX makes it when it needs it, and warns where it cannot
        folder.mkdir(mode=0o700, exist_ok=True)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", _LEAST_SECONDS)

    def listener(event: str, **_: object) -> None:
        if event == _FOUND:
            _here.found += 1
            on_hit()

    jax.monitoring.register_event_listener(listener)


def found_here() -> int:
    """How many compilations this thread has found there so far."""
    return _here.found
