"""Arrays and dtypes of numpy."""

from typing import Any

import numpy as np

from jitclient.codec.graph.nodes import Node, Value
from jitclient.codec.graph.walker import Walker, describes, describes_as
from jitclient.codec.plain import Reduced
from jitclient.codec.reducers.instances import describe_instance
from jitclient.codec.user_code.names import lookup


@describes(np.ndarray)
def _array(walker: Walker, array: np.ndarray[Any, Any]) -> Value:
    walker.uses_package("numpy")
    if array.dtype.hasobject:
        return _object_array(walker, array)
    writeable = bool(array.flags.writeable)
    by_column = bool(array.flags.f_contiguous and not array.flags.c_contiguous)
    data = array.tobytes("F" if by_column else "C")
    dtype = walker.value(array.dtype)
    return Node("array", array, [dtype, list(array.shape), data, writeable, by_column])


@describes_as("object_array")
def _object_array(walker: Walker, node: Node, array: np.ndarray[Any, Any]) -> None:
    node.args = [list(array.shape), [walker.value(item) for item in array.ravel().tolist()]]


def describe_dtype(walker: Walker, dtype: Any) -> Value:
    """A dtype by name; a structured one, or one with parameters, by its parts."""
    walker.uses_package("numpy")
    name = name_of_dtype(dtype)
    if name is None:
        return describe_instance(walker, dtype)
    walker.uses_package(dtype.type.__module__)
    return Reduced("dtype", (name,))


def name_of_dtype(dtype: Any) -> str | None:
    """The name from which `values.dtype` makes a dtype, or None."""
    if dtype.names is not None or dtype.subdtype is not None or dtype.metadata or dtype.kind == "T":
        return None
    name: str = dtype.name if dtype.type.__module__ == "ml_dtypes" else dtype.str
    return name


def describe_ufunc(walker: Walker, ufunc: Any) -> Value:
    """A universal function, which does not say which module it lives in."""
    if lookup("numpy", ufunc.__name__) is ufunc:
        return walker.installed(("numpy", ufunc.__name__))
    return walker.by_reference(ufunc)
