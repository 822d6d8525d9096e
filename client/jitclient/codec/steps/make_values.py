"""Steps of a program that make containers, instances, and objects of numpy and JAX."""

import importlib
import threading
import typing
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from jitclient.codec.reducers.jitted import rebuild_jit
from jitclient.codec.steps import lazy_nodes
from jitclient.codec.steps.builder import Builder, fills, makes
from jitclient.errors import CaptureError


@makes("opaque")
def _opaque(builder: Builder, program: str, number: int) -> Any:
    raise CaptureError("it is given what only a trace knows, such as a jaxpr of `jax.vjp`")


@makes("list")
def _list(builder: Builder) -> list[Any]:
    return []


@fills("extend")
def _extend(builder: Builder, target: list[Any], items: Any) -> None:
    def fill() -> None:
        target[:] = items

    fill()
    builder.again(fill)


@makes("dict")
def _dict(builder: Builder) -> dict[Any, Any]:
    return {}


@fills("update")
def _update(builder: Builder, target: dict[Any, Any], pairs: Any) -> None:
    def fill() -> None:
        target.clear()
        target.update(pairs)

    fill()
    builder.again(fill)


@makes("set")
def _set(builder: Builder) -> set[Any]:
    return set()


@fills("add")
def _add(builder: Builder, target: set[Any], items: Any) -> None:
    def fill() -> None:
        target.clear()
        target.update(items)

    fill()
    builder.again(fill)


@makes("frozenset")
def _frozenset(builder: Builder, items: Any) -> frozenset[Any]:
    return frozenset(items)


@makes("bytearray")
def _bytearray(builder: Builder, data: bytes) -> bytearray:
    return bytearray(data)


@makes("call")
def _call(builder: Builder, func: Any, arguments: Any) -> Any:
    return func(*arguments)


@makes("new")
def _new(builder: Builder, cls: Any, arguments: Any, maker: Any) -> Any:
    return (maker or cls).__new__(cls, *arguments)


@makes("bare")
def _bare(builder: Builder, cls: Any) -> Any:
    return object.__new__(cls)


@fills("state")
def _state(builder: Builder, target: Any, attributes: Any, slots: Any) -> None:
    if attributes:
        # not getattr: a class may compute its attributes from the very ones that are restored
        object.__getattribute__(target, "__dict__").update(attributes)
    for name, value in slots:
        object.__setattr__(target, name, value)


@fills("setstate")
def _setstate(builder: Builder, target: Any, state: Any) -> None:
    target.__setstate__(state)


@fills("call_setter")
def _call_setter(builder: Builder, target: Any, setter: Any, state: Any) -> None:
    setter(target, state)


@fills("call_on")
def _call_on(builder: Builder, target: Any, method: Any, arguments: Any) -> None:
    method(target, *arguments)


@fills("append")
def _append(builder: Builder, target: Any, items: Any) -> None:
    for item in items:
        target.append(item)


@fills("set_items")
def _set_items(builder: Builder, target: Any, pairs: Any) -> None:
    for key, value in pairs:
        target[key] = value


@makes("partial")
def _partial(builder: Builder, kind: Any, func: Any, args: Any, keywords: Any) -> Any:
    return kind(func, *args, **dict(keywords))


@makes("lock")
def _lock(builder: Builder, is_reentrant: bool) -> Any:
    return threading.RLock() if is_reentrant else threading.Lock()


@makes("fresh")
def _fresh(builder: Builder, module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)()


@makes("weakref")
def _weak_reference(builder: Builder, target: Any) -> Callable[[], Any]:
    return (lambda: None) if target is None else weakref.ref(target)


@makes("typevar")
def _type_variable(
    builder: Builder,
    name: str,
    bound: Any,
    constraints: Any,
    covariant: bool,
    contravariant: bool,
    infers_variance: bool,
) -> Any:
    variances: dict[str, Any] = {"covariant": covariant, "contravariant": contravariant}
    if infers_variance:  # since Python 3.12
        variances["infer_variance"] = True
    make: Any = typing.TypeVar
    return make(name, *constraints, bound=bound, **variances)


@makes("typed_dict")
def _typed_dict(builder: Builder, name: str, fields: Any, required: list[str]) -> Any:
    types = {field: typing.Required[kind] if field in required else typing.NotRequired[kind] for field, kind in fields}
    make: Any = typing.TypedDict
    return make(name, types)


@makes("array")
def _array(builder: Builder, dtype: Any, shape: list[int], data: bytes, is_writeable: bool, by_column: bool) -> Any:
    return numpy_array(dtype, shape, data, is_writeable, by_column)


def numpy_array(dtype: Any, shape: Sequence[int], data: bytes, is_writeable: bool, by_column: bool) -> Any:
    """An array of numpy's, out of its bytes."""
    import numpy as np

    order: Any = "F" if by_column else "C"
    array = np.frombuffer(data, dtype).reshape(shape, order=order).copy(order)
    array.flags.writeable = is_writeable
    return array


@makes("object_array")
def _object_array(builder: Builder, shape: list[int], items: Any) -> Any:
    import numpy as np

    array = np.empty(len(items), object)
    for position, item in enumerate(items):
        array[position] = item
    return array.reshape(shape)


@makes("jax_array")
def _jax_array(builder: Builder, data: Any, is_weak: bool) -> Any:
    return jax_array(data, is_weak)


def jax_array(numbers: Any, is_weak: bool) -> Any:
    """An array of JAX's, with the dtype of the one of numpy's, whatever the settings are."""
    import jax
    import jax.numpy as jnp

    with jax.enable_x64(True):  # an array keeps the type that it was made with
        array = jnp.asarray(numbers)
        if not is_weak:
            return array
        if array.ndim == 0 and jnp.asarray(numbers.item()).dtype == array.dtype:
            return jnp.asarray(numbers.item())
        from jax._src.lax.lax import _convert_element_type

        return _convert_element_type(array, weak_type=True)


@makes("prng_key")
def _prng_key(builder: Builder, implementation: str, data: Any) -> Any:
    import jax

    return jax.random.wrap_key_data(jax.numpy.asarray(data), impl=implementation)


@makes("jit")
def _jit(builder: Builder, func: Any, options: Any) -> Any:
    return rebuild_jit(func, dict(options))


@makes("treedef")
def _tree(builder: Builder, is_leaf: bool, kind: Any, data: Any, children: Any) -> Any:
    return treedef(is_leaf, None if kind is None else (kind, data), children)


def treedef(is_leaf: bool, node: tuple[Any, Any] | None, children: Any) -> Any:
    """The definition of a tree, out of what `node_data` and `children` of another one gave."""
    from jax import tree_util

    if is_leaf:
        return tree_util.tree_structure(0)
    if node is not None:
        lazy_nodes.register(node[0])
    make: Any = tree_util.PyTreeDef.from_node_data_and_children
    return make(tree_util.default_registry, node, list(children))


@makes("device")
def _device(builder: Builder, platform: str, number: int) -> Any:
    import jax

    return next(device for device in jax.devices(platform) if device.id == number)
