"""Detection of JAX tracers, which traced code may store in any object."""

import sys
from collections.abc import Iterable
from typing import Any

from jitclient.capture.codec.plain import ATOMS

_MAX_DEPTH = 3


def is_tracer(value: Any) -> bool:
    """Return whether a value is a tracer, without calling the value's own code.

    A trap (a stand-in for an object that cannot be captured) treats every call as a use.
    """
    jax = sys.modules.get("jax")
    return hasattr(jax, "core") and issubclass(type(value), jax.core.Tracer)  # type: ignore[union-attr]


def holds_tracer(value: Any, depth: int = _MAX_DEPTH) -> bool:
    """Return whether a value is a tracer, or a container nested at most `depth` levels with a tracer in it."""
    kind = type(value)
    if kind in ATOMS:
        return False
    if kind is dict:
        inner: Iterable[Any] = list(value.values())
    elif kind in (list, set):
        inner = list(value)
    elif issubclass(kind, tuple):
        inner = tuple.__iter__(value)
    else:
        return is_tracer(value)
    return depth > 0 and any(holds_tracer(item, depth - 1) for item in inner)
