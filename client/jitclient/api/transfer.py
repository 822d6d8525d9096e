"""Transfer of arrays to the daemon and back, under JAX's names."""

import sys
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np

from jitclient.arrays.array import Array
from jitclient.calls.arguments import NotAnArray, specs_of
from jitclient.calls.puts import put
from jitclient.calls.where_to_trace import Facts, where_to_trace
from jitclient.core.notices import warn
from jitclient.core.settings import settings
from jitclient.core.tracebacks import api_boundary
from jitclient.errors import CaptureError, DaemonUnavailable, Incompatible
from jitclient.jaxside import client_device, context, device_options, tree
from jitclient.jaxside.interop import is_tracer
from jitclient.session import process
from jitclient.wire.messages import Spec
from jitclient.wire.shardings import Sharding

Tree = TypeVar("Tree")


@api_boundary
def device_put(x: Any, device: Any = None, *, donate: bool = False) -> Any:
    """Put the leaves of a tree on the daemon, or move them between its devices; return the tree of handles.

    If there is no daemon or it lacks the devices, jax puts the leaves in this process, after one warning. In a trace,
    this is `jax.device_put`.

    Args:
        x: a tree of arrays and scalars. An array that is already on the daemon is not sent, and keeps its place unless
            `device` differs.
        device: a `jax.Device` or a `jax.sharding.Sharding`, which stand for the daemon's devices; under `jax.set_mesh`
            a `PartitionSpec`; or a tree prefix of `x` of these and None. None stands for the default device.
        donate: whether the arrays in `x` may be deleted.

    Raises:
        CaptureError: a sharding cannot be sent or jax.distributed is in use, and JITSERVER_FALLBACK=error.
        DaemonError: there is no daemon or it lacks the devices, and JITSERVER_FALLBACK=error.
        TypeError: a leaf is neither an array nor a scalar.
        ValueError: `device` is not a prefix of the tree, or does not fit the shapes of the arrays.

    Example:
        >>> data = jitclient.device_put(np.zeros((1000, 10), np.float32))
        >>> batch = jitclient.device_put(data, NamedSharding(mesh, P("batch")))
    """
    leaves, shape = tree.flatten(x)
    structure = tree.structure_of(shape)
    if any(map(is_tracer, leaves)):
        return sys.modules["jax"].device_put(x, device, donate=donate)
    try:
        arrays = _put(leaves, device_options.places(device, structure))
    except (CaptureError, DaemonUnavailable, Incompatible) as error:
        if settings().fallback == "error":
            raise
        if isinstance(error, DaemonUnavailable):
            client_device.release()
        warn(f"device_put: the arrays stay in this process: {error}")
        process.session().count_local_run()
        import jax

        return jax.device_put(x, device)
    for leaf, array in zip(leaves, arrays, strict=True):
        if donate and leaf is not array and hasattr(leaf, "delete"):
            leaf.delete()
    return tree.unflattener(structure)(arrays)


def _put(leaves: Sequence[Any], places: Sequence[Sharding | None]) -> list[Array]:
    # Puts are frequent, and the table takes microseconds.
    if context.is_one_of_several():
        where_to_trace(Facts(is_one_of_several=True)).raise_if_here()
    keeps_64_bits = context.keeps_64_bits()
    try:
        specs: Sequence[Spec] = specs_of(leaves, keeps_64_bits)
    except NotAnArray as error:
        leaf = leaves[error.number]
        raise TypeError(f"Argument {leaf!r} of type {type(leaf)} is not a valid JAX type") from None
    placed = zip(specs, places, strict=True)
    specs = [spec if place is None else msgspec.structs.replace(spec, sharding=place) for spec, place in placed]
    return put(process.session(), leaves, specs, context.default_device(context.current()))


@api_boundary
def device_get(x: Any) -> Any:
    """Fetch the array leaves of a tree as numpy arrays; convert other leaves by `np.asarray`.

    Example:
        >>> jitclient.device_get({"w": handle})
        {'w': array([1., 2.], dtype=float32)}
    """
    leaves, shape = tree.flatten(x)
    return tree.unflattener(tree.structure_of(shape))([np.asarray(leaf) for leaf in leaves])


@api_boundary
def block_until_ready(x: Tree) -> Tree:
    """Wait until every array of a tree is computed; return the tree."""
    leaves, _ = tree.flatten(x)
    for leaf in leaves:
        if hasattr(leaf, "block_until_ready"):
            leaf.block_until_ready()
    return x
