"""Moving arrays to the daemon and back, under JAX's names."""

from typing import Any, TypeVar

import numpy as np

from jitclient.calls.arguments import spec_of
from jitclient.calls.putting import put
from jitclient.local_jax import context
from jitclient.sessions import process
from jitclient.trees import tree

Tree = TypeVar("Tree")


def device_put(x: Any) -> Any:
    """Puts the leaves of a tree on the daemon and returns the tree of handles.

    Raises:
        TypeError: a leaf is neither array nor scalar.

    Example:
        >>> data = jitclient.device_put(np.zeros((1000, 10), np.float32))
    """
    leaves, shape = tree.flatten(x)
    here = process.session()
    keeps_64_bits = context.keeps_64_bits()
    arrays = put(here, leaves, [spec_of(leaf, keeps_64_bits) for leaf in leaves])
    return tree.unflattener(tree.structure_of(shape))(arrays)


def device_get(x: Any) -> Any:
    """Fetches the leaves of a tree as numpy arrays; what is no `jitclient.Array` becomes one as `np.asarray` does.

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
