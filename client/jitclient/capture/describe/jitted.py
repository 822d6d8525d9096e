"""Jitted functions in captures: their reconstruction in the daemon, and attributes that a program set on them."""

import functools
from collections.abc import Callable, Mapping
from typing import Any


def rebuild_jit(fn: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    """Return a function jitted by JAX itself, which a `jitclient.jit` function becomes when it is loaded."""
    import jax

    return jax.jit(fn, **options)


def program_attributes(jitted: Any, fn: Any) -> dict[str, Any]:
    """Return the attributes that a program set on a jitted function, without those copied from its function."""
    copied = getattr(fn, "__dict__", {})
    return {
        name: value
        for name, value in vars(jitted).items()
        if name not in _DESCRIPTION and (name not in copied or copied[name] is not value)
    }


_DESCRIPTION = {*functools.WRAPPER_ASSIGNMENTS, "__wrapped__", "__signature__", "_fun", "_jit_info"}
