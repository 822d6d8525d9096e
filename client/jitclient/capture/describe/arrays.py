"""Describers for numpy and JAX: arrays, dtypes, random keys, jitted functions, tree definitions, devices.

This module imports jax only for objects of JAX, so the program has already imported it.
"""

import sys
from typing import Any

import numpy as np

from jitclient.capture.ambient.contents import is_primitive
from jitclient.capture.codec.plain import Reduced
from jitclient.capture.describe.instances import describe_instance
from jitclient.capture.describe.jitted import program_attributes
from jitclient.capture.graph.nodes import Node, Value
from jitclient.capture.graph.walker import Describer, Walker, describes, describes_as
from jitclient.capture.user_code.installed import OWN_PACKAGES
from jitclient.capture.user_code.names import holder_of, lookup
from jitclient.errors import CaptureError

_JIT_OPTIONS = (
    *("static_argnums", "static_argnames", "donate_argnums", "donate_argnames"),
    *("keep_unused", "inline", "device", "backend"),
)


@describes(np.ndarray)
def _array(walker: Walker, array: np.ndarray[Any, Any]) -> Value:
    walker.uses_package("numpy")
    if array.dtype.hasobject:
        return _object_array(walker, array)
    return Node("array", array, [walker.value(array.dtype), list(array.shape), *content_of_array(array)])


def content_of_array(array: np.ndarray[Any, Any]) -> tuple[bytes, bool, tuple[int, ...]]:
    """Return the content of an array: bytes in row-major order, writability and strides (in bytes).

    The strides are empty for a C-contiguous array. They matter because the last bits of numpy's results may depend on
    the layout in memory.
    """
    return _without_padding(array).tobytes(), bool(array.flags.writeable), _strides_of(array)


def _without_padding(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array with zeros in the padding of structures and of the x87's numbers, which may have any contents."""
    dtype = array.dtype
    if dtype.names is None and dtype.char not in "gG":
        return array
    clean = np.zeros(array.shape, dtype)
    if dtype.names is None:
        np.positive(array, out=clean)
    for name in dtype.names or ():
        clean[name] = _without_padding(array[name])
    return clean


def _strides_of(array: np.ndarray[Any, Any]) -> tuple[int, ...]:
    if array.flags.c_contiguous:
        return ()
    return tuple(stride if size > 1 else 0 for size, stride in zip(array.shape, array.strides, strict=True))


def describe_padded_scalar(walker: Walker, scalar: Any) -> Value:
    """Describe a scalar whose bytes may have padding."""
    if scalar.dtype.hasobject:
        return describe_instance(walker, scalar)
    data = _without_padding(np.asarray(scalar)).tobytes()
    return Node("call", scalar, [walker.value(scalar.__reduce__()[0]), (walker.value(scalar.dtype), data)])


@describes_as("object_array")
def _object_array(walker: Walker, node: Node, array: np.ndarray[Any, Any]) -> None:
    node.args = [list(array.shape), [walker.value(item) for item in array.ravel().tolist()], _strides_of(array)]


def describe_dtype(walker: Walker, dtype: Any) -> Value:
    """Describe a dtype by name, or by its parts if it is structured or has parameters."""
    walker.uses_package("numpy")
    name = name_of_dtype(dtype)
    if name is None:
        return describe_instance(walker, dtype)
    walker.uses_package(dtype.type.__module__)
    return Reduced("dtype", (name,))


def name_of_dtype(dtype: Any) -> str | None:
    """Return the name from which `values.dtype` makes a dtype, or None."""
    if dtype.names is not None or dtype.subdtype is not None or dtype.metadata or dtype.kind == "T":
        return None
    name: str = dtype.name if dtype.type.__module__ == "ml_dtypes" else dtype.str
    return name


def describe_ufunc(walker: Walker, ufunc: Any) -> Value:
    """Describe a numpy universal function, which does not record its module."""
    if lookup("numpy", ufunc.__name__) is ufunc:
        return walker.installed(("numpy", ufunc.__name__))
    return walker.by_reference(ufunc)


def _primitive(walker: Walker, primitive: Any) -> Value:
    home = holder_of(primitive)
    if home is None:
        # Its rules are in JAX's tables, which are not captured.
        raise CaptureError(f"a primitive of the program's own cannot be captured: {primitive}")
    return walker.installed(home)


def _array_of_jax(walker: Walker, array: Any) -> Value:
    import jax

    if isinstance(array, jax.core.Tracer):
        raise CaptureError("a tracer of an active JAX transformation cannot be captured")
    if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        node, kind = Node("prng_key", array), jax.random.key_impl(array)
        if not isinstance(kind, str):
            raise CaptureError("a key of a random number generator of the program's own cannot be captured")
        data = np.asarray(jax.random.key_data(array))
        node.args = [kind, walker.value(data)]
        return node
    if not array.is_fully_addressable:
        raise CaptureError("an array that is spread over several processes cannot be captured")
    weak = bool(getattr(array, "weak_type", False))
    parts = [walker.value(np.asarray(array)), weak]
    if jax.sharding.AxisType.Explicit in jax.typeof(array).sharding.mesh.axis_types:
        # The sharding is part of the array's type.
        parts.append(walker.value(array.sharding))
    return Node("jax_array", array, parts)


@describes_as("treedef")
def _tree(walker: Walker, node: Node, tree: Any) -> None:
    data = tree.node_data()
    kind, metadata = map(walker.value, data or (None, None))
    is_leaf = data is None and tree.num_leaves == 1
    node.args = [is_leaf, kind, metadata, [walker.value(child) for child in tree.children()]]


@describes_as("jit")
def _jitted(walker: Walker, node: Node, jitted: Any) -> None:
    node.args = [walker.value(jitted._fun), walker.pairs(jit_options(jitted._jit_info))]
    attributes = program_attributes(jitted, jitted._fun)
    if attributes:
        node.fill("state", walker.pairs(attributes), [])


def _device(walker: Walker, device: Any) -> Value:
    """Describe a device by its position, since the daemon's devices may belong to another platform."""
    import jax

    alike = jax.devices(device.platform)
    is_default = alike == jax.devices()
    return Node("device", device, ["" if is_default else device.platform, alike.index(device)])


def describer_of_jax(obj: Any) -> Describer | None:
    """Return the describer for an object of JAX, or None."""
    jax = sys.modules.get("jax")
    if jax is None:
        return None
    if is_primitive(obj):
        return _primitive
    if type(obj).__module__.partition(".")[0] in OWN_PACKAGES:
        # An array on the daemon defines its own pickling.
        return None
    if isinstance(obj, jax.Array):
        return _array_of_jax
    if isinstance(obj, jax.Device):
        return _device
    if type(obj).__module__ == "jaxlib._jax" and type(obj).__name__ == "Traceback":
        return _traceback
    return {"PjitFunction": _jitted, "PyTreeDef": _tree}.get(type(obj).__name__)


def _traceback(walker: Walker, traceback: Any) -> Value:
    """Describe a JAX traceback: its content is left out, because it only records where an object was made."""
    return Node("traceback", traceback, [])


def jit_options(info: Any) -> dict[str, Any]:
    """Return the keywords of `jax.jit` that made a jitted function, without those at their defaults."""
    given = {name: getattr(info, name, None) for name in _JIT_OPTIONS}
    options = {name: value for name, value in given.items() if value not in ((), None, False)}
    if info.compiler_options_kvs:
        options["compiler_options"] = dict(info.compiler_options_kvs)
    for side in ("in", "out"):
        leaves = getattr(info, f"{side}_shardings_leaves")
        if not all(type(leaf).__name__ == "UnspecifiedValue" for leaf in leaves):
            tree = getattr(info, f"{side}_shardings_treedef")
            options[f"{side}_shardings"] = tree.unflatten(leaves)
    return options
