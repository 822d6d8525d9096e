"""Compilations by the text of their programs: JAX's own cache on the disk, in a folder of ours, which we bound."""

from collections.abc import Callable
from pathlib import Path

import jax

_LEAST_SECONDS = 0.3
"""A shorter compilation is no quicker to find than to do again."""

_FOUND = "/jax/compilation_cache/cache_hits"


def keep_in(folder: Path, on_hit: Callable[[], None]) -> None:
    """Has JAX keep long compilations there, and tell when one is found."""
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", _LEAST_SECONDS)
    jax.monitoring.register_event_listener(lambda event, **_: on_hit() if event == _FOUND else None)
