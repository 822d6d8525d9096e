"""Jitted functions in captures: what the daemon makes of one, and what a program put on one itself."""

import functools
from collections.abc import Callable, Mapping
from typing import Any


def rebuild_jit(fn: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    """What a `jitclient.jit` function becomes in the daemon: a function jitted by JAX itself."""
    import jax

    return jax.jit(fn, **options)


def own_attributes(jitted: Any, fn: Any) -> dict[str, Any]:
    """The attributes that a program gave a jitted function, without those that come with the function itself."""
    copied = getattr(fn, "__dict__", {})
    return {
        name: value
        for name, value in vars(jitted).items()
        if name not in _DESCRIPTION and (name not in copied or copied[name] is not value)
    }


_DESCRIPTION = {*functools.WRAPPER_ASSIGNMENTS, "__wrapped__", "__signature__", "_fun", "_jit_info"}
