"""The keywords of jit about devices, for the arguments of one call. Imports jax where there are any."""

from typing import Any

from jitclient.codec import values
from jitclient.errors import CaptureError
from jitclient.local_jax import shardings
from jitclient.tracing.options import JitOptions
from jitclient.trees import tree
from jitclient.wire.shardings import JitShardings, Outputs, Sharding


def jit_shardings(
    options: JitOptions, structure: tree.Structure, ref: values.Ref = values.nowhere
) -> JitShardings | None:
    """What the keywords say of the arguments' leaves and the results; None where they say nothing.

    Raises:
        CaptureError: it has no form that can be sent.
        ValueError: it does not fit the arguments.
    """
    if not options.about_devices():
        return None
    one = _one_device(options)
    if one is not None:
        return JitShardings((one,) * tree.size(structure), Outputs(tree.encode(tree.LEAF), (one,)))
    inputs = outputs = None
    if options.in_shardings is not None:
        inputs = _inputs(options.in_shardings, structure)
    if options.out_shardings is not None:
        leaves, prefix = _prefix(options.out_shardings)
        outputs = Outputs(tree.encode(prefix, ref), tuple(map(_message, leaves)))
    return JitShardings(inputs, outputs)


def objects_in(options: JitOptions) -> list[Any]:
    """What the tree of the results' shardings holds that a message can name only by its place in a capture."""
    return [] if options.out_shardings is None else list(tree.objects_in(_prefix(options.out_shardings)[1]))


def of_results(outputs: Outputs, out_tree: Any, deref: values.Deref) -> list[Any]:
    """JAX's shardings, for each leaf of the results.

    Raises:
        CaptureError: each process has the results in an order of its own.
        ValueError: the tree is no prefix of that of the results.
        Incompatible: this process has fewer devices.
    """
    if tree.leaf_order(tree.structure_of(out_tree)) is not None:
        raise CaptureError("its keywords place leaves of a class that has them in another order in every process")
    leaves = [message and shardings.to_jax(message) for message in outputs.leaves]
    return [leaves[number] for number in _spread(tree.decode(outputs.tree, deref), out_tree)]


def _one_device(options: JitOptions) -> Sharding | None:
    import jax

    if options.device is not None:
        return shardings.on_device(options.device)
    if options.backend is not None:
        return shardings.on_first(options.backend if options.backend != jax.default_backend() else "")
    return None


def _inputs(given: Any, structure: tree.Structure) -> tuple[Sharding | None, ...]:
    assert structure is not None
    positional, keywords = structure.children
    if tree.size(keywords):
        raise ValueError("jit does not support kwargs when in_shardings is specified.")
    leaves, prefix = _prefix(tuple(given) if isinstance(given, list) else given)
    return tuple(_message(leaves[number]) for number in _spread(prefix, tree.treedef_of(positional)))


def _prefix(given: Any) -> tuple[list[Any], tree.Structure]:
    """The leaves, None among them, and the structure."""
    import jax

    treedef: Any
    leaves, treedef = jax.tree.flatten(given, is_leaf=lambda x: x is None)
    return leaves, tree.structure_of(jax.tree.structure(treedef.unflatten(range(len(leaves)))))


def _spread(prefix: Any, over: Any) -> list[int]:
    """For each leaf of a tree, which leaf of its prefix is above it."""
    import jax

    numbers = tree.treedef_of(prefix).unflatten(range(tree.size(prefix)))
    chosen: list[int] = jax.tree.leaves(jax.tree.broadcast(numbers, over.unflatten(range(over.num_leaves))))
    return chosen


def _message(leaf: Any) -> Sharding | None:
    import jax

    if leaf is None or type(leaf).__name__ == "UnspecifiedValue":
        return None
    if not isinstance(leaf, (jax.sharding.Sharding, jax.sharding.PartitionSpec)):
        raise CaptureError(f"a {type(leaf).__name__} has no form that can be sent")
    return shardings.of(leaf) or shardings.on_first()
