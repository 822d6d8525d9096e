"""Objects of JAX's own: arrays, keys, jitted functions, tree definitions, devices.

jax is never imported here: a program that holds such an object has imported it.
"""

import sys
from typing import Any

import numpy as np

from jitclient.codec.ambient.registries import is_primitive
from jitclient.codec.graph.nodes import Node, Value
from jitclient.codec.graph.walker import Describer, Walker, describes_as
from jitclient.codec.reducers.jitted import own_attributes
from jitclient.codec.user_code.installed import OURS
from jitclient.codec.user_code.names import holder_of
from jitclient.errors import CaptureError

_JIT_OPTIONS = ("static_argnums", "static_argnames", "donate_argnums", "donate_argnames")
_JIT_FLAGS = ("keep_unused", "inline", "device", "backend")


def _primitive(walker: Walker, primitive: Any) -> Value:
    home = holder_of(primitive)
    if home is None:  # its rules are in JAX's tables
        raise CaptureError(f"a primitive of the program's own cannot be captured: {primitive}")
    return walker.installed(home)


def _array(walker: Walker, array: Any) -> Value:
    import jax

    if isinstance(array, jax.core.Tracer):
        raise CaptureError("a tracer of a transformation that is under way cannot be captured")
    if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        node = Node("prng_key", array)
        data = np.asarray(jax.random.key_data(array))
        node.args = [str(jax.random.key_impl(array)), walker.value(data)]
        return node
    if not array.is_fully_addressable:
        raise CaptureError("an array that is spread over several processes cannot be captured")
    weak = bool(getattr(array, "weak_type", False))
    parts = [walker.value(np.asarray(array)), weak]
    if jax.sharding.AxisType.Explicit in jax.typeof(array).sharding.mesh.axis_types:  # its place is part of its type
        parts.append(walker.value(array.sharding))
    return Node("jax_array", array, parts)


@describes_as("treedef")
def _tree(walker: Walker, node: Node, tree: Any) -> None:
    data = tree.node_data()
    node.args = [
        data is None and tree.num_leaves == 1,
        None if data is None else walker.value(data[0]),
        None if data is None else walker.value(data[1]),
        [walker.value(child) for child in tree.children()],
    ]


@describes_as("jit")
def _jitted(walker: Walker, node: Node, jitted: Any) -> None:
    node.args = [walker.value(jitted._fun), walker.pairs(jit_options(jitted._jit_info))]
    attributes = own_attributes(jitted, jitted._fun)
    if attributes:
        node.fill("state", walker.pairs(attributes), [])


def _device(walker: Walker, device: Any) -> Value:
    """By its position, as the daemon's devices may be of another platform."""
    import jax

    alike = jax.devices(device.platform)
    is_default = alike == jax.devices()
    return Node("device", device, ["" if is_default else device.platform, alike.index(device)])


def describer_of_jax(obj: Any) -> Describer | None:
    """What describes an object of JAX's, or None."""
    jax = sys.modules.get("jax")
    if jax is None:
        return None
    if is_primitive(obj):
        return _primitive
    if type(obj).__module__.partition(".")[0] in OURS:  # an array of the daemon's, which says itself how it travels
        return None
    if isinstance(obj, jax.Array):
        return _array
    if isinstance(obj, jax.Device):
        return _device
    return {"PjitFunction": _jitted, "PyTreeDef": _tree}.get(type(obj).__name__)


def jit_options(info: Any) -> dict[str, Any]:
    """The keywords of `jax.jit` that made a jitted function, where they are not the defaults."""
    options: dict[str, Any] = {}
    for name in (*_JIT_OPTIONS, *_JIT_FLAGS):
        value = getattr(info, name, None)
        if value not in ((), None, False):
            options[name] = value
    if info.compiler_options_kvs:
        options["compiler_options"] = dict(info.compiler_options_kvs)
    for side in ("in", "out"):
        leaves = getattr(info, f"{side}_shardings_leaves")
        if not all(type(leaf).__name__ == "UnspecifiedValue" for leaf in leaves):
            tree = getattr(info, f"{side}_shardings_treedef")
            options[f"{side}_shardings"] = tree.unflatten(leaves)
    return options
