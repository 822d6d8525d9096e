"""Functions of ours that captures name, and that the daemon calls while it loads one."""

from collections.abc import Callable, Mapping
from typing import Any


def rebuild_jit(fn: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    """What a `jitclient.jit` function becomes in the daemon: a function jitted by JAX itself."""
    import jax

    return jax.jit(fn, **options)
