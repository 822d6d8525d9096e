"""`jax.jit` with JAX's persistent compilation cache, told to keep whatever was compiled."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from benchmarks.rivals import plain_jax

NAME = "JAX's disk cache"
NEEDS = ("jax",)
connect = plain_jax.connect


@contextlib.contextmanager
def serve(folder: Path) -> Iterator[dict[str, str]]:
    """No server: a folder that all clients share."""
    yield {
        "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
