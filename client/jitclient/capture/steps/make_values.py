"""Steps of a program that need only their arguments: containers, instances, objects of numpy and JAX."""

import importlib
import sys
import threading
import typing
import weakref
from collections.abc import Callable, Sequence
from types import CellType, FunctionType, MethodType
from typing import Any

from jitclient.capture.codec.unpickler import from_bytes
from jitclient.capture.describe.jitted import rebuild_jit
from jitclient.capture.user_code.registry import register_late
from jitclient.core.compat import type_variable
from jitclient.errors import Incompatible

_MAX_SPANNED_BYTES = 16 << 20  # maximum memory span of an array with gaps, in bytes


def _state(target: Any, attributes: Any, slots: Any) -> None:
    if attributes:
        # Bypass the class's `__getattribute__`, which may read the attributes that are restored here.
        object.__getattribute__(target, "__dict__").update(attributes)
    for name, value in slots:
        object.__setattr__(target, name, value)


def _attributes(func: FunctionType, attributes: Any) -> None:
    for name, value in attributes:
        setattr(func, name, value)


def _append(target: Any, items: Any) -> None:
    for item in items:
        target.append(item)


def _set_items(target: Any, pairs: Any) -> None:
    for key, value in pairs:
        target[key] = value


def weak_reference(target: Any) -> Callable[[], Any]:
    """Return a weak reference to the target, or one to nothing if the target is None."""
    return (lambda: None) if target is None else weakref.ref(target)


def _typed_dict(name: str, fields: Any, required: list[str]) -> Any:
    make: Any = typing.TypedDict
    made = make(name, dict(fields))
    made.__required_keys__ = frozenset(required)
    made.__optional_keys__ = frozenset(dict(fields)) - made.__required_keys__
    return made


def numpy_array(dtype: Any, shape: Sequence[int], data: bytes, is_writeable: bool, strides: Sequence[int]) -> Any:
    """Return a numpy array made from bytes; without strides it is C-contiguous."""
    import numpy as np

    array = _laid_out(np.frombuffer(data, dtype).reshape(shape), strides)
    array.flags.writeable = is_writeable
    return array


def _laid_out(array: Any, strides: Sequence[int]) -> Any:
    """Return a copy of an array with these strides (in bytes), or in their axis order if the gaps are too large."""
    import numpy as np

    if not strides:
        return array.copy("C")
    ends = [(size - 1) * stride for size, stride in zip(array.shape, strides, strict=True)]
    span = sum(map(abs, ends)) + array.itemsize
    if span > max(_MAX_SPANNED_BYTES, 2 * array.nbytes) or array.dtype.hasobject:
        axes = sorted(range(array.ndim), key=lambda axis: -abs(strides[axis]))
        return array.transpose(axes).copy("C").transpose(np.argsort(axes))
    made: Any = np.ndarray(array.shape, array.dtype, bytearray(span), -sum(min(end, 0) for end in ends), strides)
    made[...] = array
    return made


def _object_array(shape: list[int], items: Any, strides: Sequence[int]) -> Any:
    import numpy as np

    array = np.empty(len(items), object)
    for position, item in enumerate(items):
        array[position] = item
    return _laid_out(array.reshape(shape), strides)


def jax_array(numbers: Any, is_weak: bool, sharding: Any = None) -> Any:
    """Return a JAX array with the dtype of a numpy array, even if JAX's settings would change the dtype."""
    import jax
    import jax.numpy as jnp

    # An array keeps the dtype that it was made with.
    with jax.enable_x64(True):
        array = jax.device_put(jnp.asarray(numbers), sharding)
        if not is_weak:
            return array
        if array.ndim == 0 and jnp.asarray(numbers.item()).dtype == array.dtype:
            return jnp.asarray(numbers.item())
        return jax.lax.convert_element_type_p.bind(array, new_dtype=array.dtype, weak_type=True, sharding=None)


def _prng_key(implementation: str, data: Any) -> Any:
    import jax

    return jax.random.wrap_key_data(jax.numpy.asarray(data), impl=implementation)


def treedef(is_leaf: bool, node: tuple[Any, Any] | None, children: Any) -> Any:
    """Return the tree definition made from the `node_data` and `children` of another one."""
    from jax import tree_util

    if is_leaf:
        return tree_util.tree_structure(0)
    if node is not None:
        register_late(node[0])
    make: Any = tree_util.PyTreeDef.from_node_data_and_children
    return make(tree_util.default_registry, node, list(children))


def _device(platform: str, number: int) -> Any:
    import jax

    devices = jax.devices(platform or None)
    if number >= len(devices):
        raise Incompatible.with_devices(number + 1, len(devices))
    return devices[number]


def _traceback() -> Any:
    """Return a JAX traceback of this place; it replaces one that only records where an object was made."""
    return sys.modules["jaxlib._jax"].Traceback.get_traceback()


MAKERS: dict[str, Callable[..., Any]] = {
    "address": lambda target: target if type(target) is int else id(target),
    "array": numpy_array,
    "bare": object.__new__,
    "bytearray": bytearray,
    "traceback": _traceback,
    "cached": lambda maker, arguments, results: maker(*arguments),
    "call": lambda func, arguments: func(*arguments),
    "cell": CellType,
    "code": from_bytes,
    "device": _device,
    "dict": dict,
    "fresh": lambda module, name: getattr(importlib.import_module(module), name)(),
    "frozenset": frozenset,
    "jax_array": jax_array,
    "jit": lambda func, options: rebuild_jit(func, dict(options)),
    "list": list,
    "lock": lambda is_reentrant: threading.RLock() if is_reentrant else threading.Lock(),
    "method": MethodType,
    "names": vars,
    "new": lambda cls, arguments, maker: (maker or cls).__new__(cls, *arguments),
    "object_array": _object_array,
    "partial": lambda kind, func, args, keywords: kind(func, *args, **dict(keywords)),
    "prng_key": _prng_key,
    "set": set,
    "treedef": lambda is_leaf, kind, data, children: treedef(is_leaf, None if kind is None else (kind, data), children),
    "typed_dict": _typed_dict,
    "typevar": type_variable,
    "weakref": weak_reference,
}
"""Step name -> function that makes the object."""

FILLERS: dict[str, Callable[..., None]] = {
    "annotations": lambda func, annotations: setattr(func, "__annotations__", dict(annotations)),
    "append": _append,
    "attributes": _attributes,
    "call_on": lambda target, method, arguments: method(target, *arguments),
    "call_setter": lambda target, setter, state: setter(target, state),
    "defaults": lambda func, defaults: setattr(func, "__defaults__", defaults),
    "differs": lambda target, *parts: None,  # state that is in the key, and that no step restores
    "kwdefaults": lambda func, defaults: setattr(func, "__kwdefaults__", dict(defaults)),
    "own_dict": lambda target: object.__setattr__(target, "__dict__", target),
    "set_cell": lambda cell, content: setattr(cell, "cell_contents", content),
    "set_items": _set_items,
    "setstate": lambda target, state: target.__setstate__(state),
    "state": _state,
}
"""Step name -> function that completes an object, called with the object and the step's arguments."""
