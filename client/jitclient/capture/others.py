"""What no type claims: in which order to ask what an object is."""

import enum
import functools
from collections.abc import Callable
from typing import Any

from .arrays import describe_dtype, describe_ufunc, is_dtype, is_ufunc
from .classes import describe_class
from .graph import Value
from .instances import describe_instance
from .jax_values import describe_jax, is_of_jax
from .names import constant_home, home_of
from .walker import Describer, Walker
from .wrappers import describe_enum_member, describe_partial

_SPECIAL: tuple[tuple[Callable[[Any], bool], Describer], ...] = (
    (is_of_jax, describe_jax),
    (is_dtype, describe_dtype),
    (is_ufunc, describe_ufunc),
    (lambda obj: isinstance(obj, functools.partial), describe_partial),
    (lambda obj: isinstance(obj, enum.Enum), describe_enum_member),
)


def describe_other(walker: Walker, obj: Any) -> Value:
    """Describe an object by what it is, when its exact type does not say."""
    if isinstance(obj, type):
        return describe_class(walker, obj)
    home = constant_home(obj) or home_of(obj)
    if home is not None:
        return walker.installed(home)
    for accepts, describe in _SPECIAL:
        if accepts(obj):
            return describe(walker, obj)
    return describe_instance(walker, obj)
