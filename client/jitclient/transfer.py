"""Moving arrays to the daemon and back, under JAX's names."""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from jitclient.arrays.array import Array
from jitclient.calls.arguments import outgoing, spec_of
from jitclient.errors import DaemonLost, DaemonSilent
from jitclient.local_jax import context
from jitclient.sessions import process
from jitclient.sessions.failures import to_exception
from jitclient.sessions.session import Session
from jitclient.trees import tree
from jitclient.wire.arrays import HostArray, inline_most
from jitclient.wire.messages import Put, Run, Spec

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
    specs = [spec_of(leaf, keeps_64_bits) for leaf in leaves]
    try:
        arrays = _put(leaves, specs, here)
    except DaemonSilent:
        raise
    except DaemonLost:  # what is put is still at hand, and twice is as good as once
        arrays = _put(leaves, specs, here)
    return tree.unflattener(tree.structure_of(shape))(arrays)


def _put(leaves: Sequence[Any], specs: Sequence[Spec], here: Session) -> list[Array]:
    with here:
        attachments: list[HostArray] = []
        puts, arrays = [], []
        for leaf, spec in zip(leaves, specs, strict=True):
            value = outgoing(leaf, spec, here, attachments, inline_most(len(leaves)))
            if isinstance(value, int):  # it is there already
                arrays.append(leaf)
                continue
            handle = here.new_handles(1)
            arrays.append(Array(here, handle, spec))
            puts.append(Put(spec, value, handle))
        done, _ = here.run(Run(puts=puts), attachments)
    for _, failure in done.failures:
        raise to_exception(failure)
    return arrays


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
