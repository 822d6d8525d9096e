"""What no type claims: in which order to ask what an object is."""

import enum
import functools
from typing import Any

import numpy as np

from jitclient.codec.graph.nodes import Value
from jitclient.codec.graph.walker import Describer, Walker, describes
from jitclient.codec.reducers.absl_flags import describe_flag_holder, describe_flags
from jitclient.codec.reducers.arrays import describe_dtype, describe_ufunc
from jitclient.codec.reducers.classes import describe_class
from jitclient.codec.reducers.instances import describe_instance
from jitclient.codec.reducers.jax_values import describer_of_jax
from jitclient.codec.reducers.wrappers import describe_enum_member, describe_partial
from jitclient.codec.user_code.flags import is_flag_holder, is_flags
from jitclient.codec.user_code.names import constant_home, home_of

_SPECIAL: tuple[tuple[type, Describer], ...] = (
    (np.dtype, describe_dtype),
    (np.ufunc, describe_ufunc),
    (functools.partial, describe_partial),
    (enum.Enum, describe_enum_member),
)


@describes(object)
def _other(walker: Walker, obj: Any) -> Value:
    if isinstance(obj, type):
        return describe_class(walker, obj)
    if is_flags(obj):
        return describe_flags(walker, obj)
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
    return (describe_flag_holder if is_flag_holder(obj) else describe_instance)(walker, obj)
