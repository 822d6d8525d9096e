"""Moves arrays to the daemon and back, under JAX's names."""

from typing import Any, TypeVar

import numpy as np

from jitclient.calls.arguments import spec_of
from jitclient.calls.puts import put
from jitclient.errors import DaemonUnavailable, Incompatible
from jitclient.local_jax import client_device, context
from jitclient.notices.warned import warn
from jitclient.sessions import process
from jitclient.settings import settings
from jitclient.trees import tree

Tree = TypeVar("Tree")


def device_put(x: Any) -> Any:
    """Puts the leaves of a tree on the daemon; returns the tree of handles.

    Without a daemon, jax puts them in this process, after one warning.

    Raises:
        DaemonError: there is no daemon, and JITSERVER_FALLBACK=error.
        TypeError: a leaf is neither an array nor a scalar.

    Example:
        >>> data = jitclient.device_put(np.zeros((1000, 10), np.float32))
    """
    leaves, shape = tree.flatten(x)
    here = process.session()
    keeps_64_bits = context.keeps_64_bits()
    try:
        arrays = put(here, leaves, [spec_of(leaf, keeps_64_bits) for leaf in leaves])
    except (DaemonUnavailable, Incompatible) as error:
        if settings().fallback == "error":
            raise
        return _put_here(x, error)
    return tree.unflattener(tree.structure_of(shape))(arrays)


def _put_here(x: Any, error: Exception) -> Any:
    if isinstance(error, DaemonUnavailable):
        client_device.release()
    warn(f"arrays are put in this process: {error}", RuntimeWarning)
    process.session().count_local_run()
    import jax

    return jax.device_put(x)


def device_get(x: Any) -> Any:
    """Fetches the leaves of a tree as numpy arrays; others are converted by `np.asarray`.

    Example:
        >>> jitclient.device_get({"w": handle})
        {'w': array([1., 2.], dtype=float32)}
    """
    leaves, shape = tree.flatten(x)
    return tree.unflattener(tree.structure_of(shape))([np.asarray(leaf) for leaf in leaves])


def block_until_ready(x: Tree) -> Tree:
    """Waits until every array of a tree is computed; returns the tree."""
    leaves, _ = tree.flatten(x)
    for leaf in leaves:
        if hasattr(leaf, "block_until_ready"):
            leaf.block_until_ready()
    return x
