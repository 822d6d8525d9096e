"""Order of the tests that find the describer of an object whose type has none registered."""

import enum
import functools
from typing import Any

import numpy as np

from jitclient.capture.ambient.inputs import message_of
from jitclient.capture.describe.arrays import (
    describe_dtype,
    describe_padded_scalar,
    describe_ufunc,
    describer_of_jax,
)
from jitclient.capture.describe.classes import describe_class
from jitclient.capture.describe.instances import describe_instance
from jitclient.capture.describe.wrappers import describe_enum_member, describe_partial
from jitclient.capture.graph.nodes import Node, Value
from jitclient.capture.graph.walker import Describer, Walker, describes
from jitclient.capture.user_code.libraries import is_flag_holder, is_flags
from jitclient.capture.user_code.names import constant_home, home_of

_SPECIAL: tuple[tuple[type, Describer], ...] = (
    (np.dtype, describe_dtype),
    (np.ufunc, describe_ufunc),
    *((kind, describe_padded_scalar) for kind in (np.void, np.longdouble, np.clongdouble)),
    (functools.partial, describe_partial),
    (enum.Enum, describe_enum_member),
)


@describes(object)
def _other(walker: Walker, obj: Any) -> Value:
    if isinstance(obj, type):
        return describe_class(walker, obj)
    if is_flags(obj):
        return _flags(walker, obj)
    home = constant_home(obj) or home_of(obj)
    if home is not None:
        return walker.installed(home)
    describe_jax = describer_of_jax(obj)
    if describe_jax is not None:
        walker.uses_package("jax")
        return describe_jax(walker, obj)
    for kind, describe in _SPECIAL:
        if isinstance(obj, kind):
            return describe(walker, obj)
    if is_flag_holder(obj):
        # The holder reads the flag of that name.
        walker.words.add(obj.name)
    return describe_instance(walker, obj)


def _flags(walker: Walker, flags: Any) -> Node:
    """Describe absl's flags: values of the flags that code names, and a trap for any other use."""
    message = message_of("absl's flags, other than those that code names")
    node = Node("flags", flags, [message, []])
    walker.uses_package("absl")
    walker.on_idle(lambda: node.replace_args([message, _values_read(walker, flags)]))
    return node


def _values_read(walker: Walker, flags: Any) -> list[Any]:
    found = []
    for name in sorted(each for each in walker.words if each in flags):
        try:
            value = getattr(flags, name)
        except Exception:
            # The flags are not parsed yet, and the code that reads one must get this error.
            continue
        attributes = vars(flags[name])
        if "_value" in attributes:
            walker.watch.name(attributes, "_value", attributes["_value"])
        found.append([name, walker.value(value)])
    return found
