"""The arguments of an operation, split into a template, which is hashable and can be sent, and array operands."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jitclient.local_jax import interop

if TYPE_CHECKING:
    from jax import Array as _JaxArray
else:
    _JaxArray = object

Template = tuple[Any, ...]
"""A kind and its content. Kinds distinguish values that compare equal: 1, True and 1.0; 0.0 and -0.0."""

_EXACT: dict[type, Callable[[Any], Any]] = {
    type(None): lambda value: None,
    bool: lambda value: value,
    int: lambda value: value,
    str: lambda value: value,
    bytes: lambda value: value,
    float: float.hex,
    complex: lambda value: (value.real.hex(), value.imag.hex()),
    np.dtype: lambda value: value.name,
}


class Remote(_JaxArray):
    """Base class of arrays on the daemon."""

    __slots__ = ()

    def in_process(self) -> Any:
        """Its value as an array of this process."""
        raise NotImplementedError


class Operands(list[Any]):
    """The operands of a template, collected while it is written."""

    def template(self, value: Any) -> Template:
        """The template of a value, whose arrays become operands."""
        if is_array(value):
            return self.operand(value)
        kind = type(value)
        if kind in (tuple, list):
            return kind.__name__, tuple(map(self.template, value))
        if kind is dict:
            return "dict", tuple((key, self.template(item)) for key, item in value.items())
        return constant(value)

    def operand(self, value: Any) -> Template:
        """Add an operand; return its place in the template."""
        self.append(value)
        return "operand", len(self) - 1


def constant(value: Any) -> Template:
    """The template of a constant of the program."""
    if isinstance(value, np.dtype):
        return "dtype", value.name
    if type(value) in _EXACT:
        return type(value).__name__, _EXACT[type(value)](value)
    if type(value) is slice:
        return "slice", tuple(map(constant, (value.start, value.stop, value.step)))
    return "ellipsis" if value is Ellipsis else "object", value


def read(template: Template, operands: Sequence[Any]) -> Any:
    """The value of a template with these operands."""
    kind, content = template
    match kind:
        case "operand":
            return operands[content]
        case "tuple":
            return tuple(read(item, operands) for item in content)
        case "list":
            return [read(item, operands) for item in content]
        case "dict":
            return {key: read(item, operands) for key, item in content}
        case "slice":
            return slice(*(read(item, operands) for item in content))
        case "float":
            return float.fromhex(content)
        case "complex":
            return complex(*map(float.fromhex, content))
        case "dtype":
            return np.dtype(content)
        case "window":
            start, size = content
            return interop.window(read(start, operands), size)
        case _:
            return content


def is_array(value: Any) -> bool:
    """Whether a value is an array of numpy, jax or the daemon."""
    return isinstance(value, (Remote, np.ndarray, np.generic)) or interop.is_jax_array(value)
