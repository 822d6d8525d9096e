"""Comparison of the functions that the daemon's trace and the own trace call back."""

import functools
from collections.abc import Sequence
from types import CellType, FunctionType, MethodType
from typing import Any

from jitclient.capture.describe.attributes import attributes_of, layout_of, slots_of
from jitclient.capture.dump import Capture, capture
from jitclient.capture.user_code.code import canonical_code
from jitclient.capture.user_code.names import content_of
from jitclient.errors import CaptureError


def difference_of_functions(here: Sequence[Any], there: Sequence[Any], *, in_order: bool) -> str:
    """Return how the functions that two programs call back differ; empty if they are equal.

    If not `in_order`, the order of the functions does not matter, but each must have an equal counterpart.
    """
    if len(here) != len(there):
        return f"the number of callbacks differs: {len(here)} here, {len(there)} on the daemon"
    left = list(there)
    for mine in here:
        found = next((n for n, other in enumerate(left[:1] if in_order else left) if are_equal(mine, other)), None)
        if found is None:
            return f"a different function is called back: {getattr(mine, '__qualname__', mine)!s:.80}"
        del left[found]
    return ""


def are_equal(here: Any, there: Any) -> bool:
    """Return whether two objects, one of which was rebuilt from its description, behave in the same way.

    Functions and their contents are compared part by part, because the parts may be of any type. Other objects are
    compared by their captures.
    """
    return _are_equal(here, there, {})


def _are_equal(here: Any, there: Any, seen: dict[tuple[int, int], Any]) -> bool:
    if here is there or (id(here), id(there)) in seen:
        return True
    if type(here) is not type(there):
        return False
    if _is_stack(here) and _is_stack(there):
        return True
    parts_of = _PARTS.get(type(here)) or (_parts_of_jax if type(here).__module__.startswith("jax.") else None)
    mine, others = (parts_of(here), parts_of(there)) if parts_of else (None, None)
    if mine is None or others is None:
        return is_same_capture(here, there)
    seen[id(here), id(there)] = here, there  # kept alive, so that the ids stay theirs
    return len(mine) == len(others) and all(_are_equal(*both, seen) for both in zip(mine, others, strict=True))


def is_same_capture(here: Any, there: Any) -> bool:
    """Return whether two objects have equal captures; False if one cannot be captured."""
    try:
        return _key(here) == _key(there)
    except CaptureError:
        return False


def _is_stack(value: Any) -> bool:
    """Return whether a value is a list of stack lines of the trace, as `equinox.error_if` keeps them.

    Such lines are like locations in a program's text: they do not affect the computation.
    """
    if type(value) is not list or not all(isinstance(part, (str, bytes)) for part in value):
        return False
    texts = [part for part in value if isinstance(part, str)]
    return bool(texts) and all(text.startswith('  File "') for text in texts)


def _key(value: Any) -> str:
    found: Capture = capture(_nothing, (value,), allow_ambient=True)
    return found.key


def _nothing() -> None:
    pass


def _function(func: FunctionType) -> list[Any]:
    code, keywords = canonical_code(func.__code__).blob, func.__kwdefaults__
    cells = list(zip(func.__code__.co_freevars, func.__closure__ or (), strict=True))
    if str(func.__module__).startswith("jax."):
        # JAX's wrapper of a callback holds the name of the platform. A client without that platform lowers its own
        # trace for the CPU, where the wrapper does the same.
        cells = [(name, cell) for name, cell in cells if name != "platform" or content_of(cell) not in _PLATFORMS]
    return [code, func.__globals__, func.__defaults__, keywords, *(cell for _, cell in cells)]


def _parts_of_jax(value: Any) -> list[Any] | None:
    """Return the parts of an object of JAX's Python code; None if it may have further parts."""
    attributes, slots = attributes_of(value), slots_of(value)
    return [attributes, slots] if layout_of(type(value)) is object and (attributes or slots) else None


_PLATFORMS = ("cpu", "cuda", "rocm")
"""Platforms for which JAX wraps a callback in the same way."""

_PARTS: dict[type, Any] = {
    FunctionType: _function,
    CellType: lambda cell: [content_of(cell)],
    MethodType: lambda method: [method.__func__, method.__self__],
    functools.partial: lambda partial: [partial.func, partial.args, partial.keywords],
    tuple: list,
    list: list,
    dict: lambda held: [*held, *held.values()],
}
