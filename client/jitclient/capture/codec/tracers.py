"""Values of traces, which may lie wherever traced code can keep a value."""

import sys
from collections.abc import Iterable
from typing import Any

from jitclient.capture.codec.plain import ATOMS

_DEEPEST = 3


def is_tracer(value: Any) -> bool:
    """Whether a value is a tracer. Never asks the value itself: to what did not travel, that is a use."""
    jax = sys.modules.get("jax")
    return hasattr(jax, "core") and issubclass(type(value), jax.core.Tracer)  # type: ignore[union-attr]


def holds_tracer(value: Any, depth: int = _DEEPEST) -> bool:
    """Whether a value is a tracer, or a container with one in it."""
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
