"""The keywords of `jit` about devices, for the arguments of one call. jax is imported only if any are given."""

from typing import Any

from jitclient.capture.codec import values
from jitclient.errors import CaptureError
from jitclient.jaxside import shardings, tree
from jitclient.jaxside.options import JitOptions
from jitclient.wire.shardings import JitShardings, Outputs, Sharding


def jit_shardings(
    options: JitOptions, structure: tree.Structure, ref: values.Ref = values.no_ref
) -> JitShardings | None:
    """Return the shardings of the arguments' leaves and of the results; None if no keyword specifies them."""
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
    """Return the objects in the tree of `out_shardings` to which a message can refer only by capture position."""
    return [] if options.out_shardings is None else list(tree.objects_in(_prefix(options.out_shardings)[1]))


def of_results(outputs: Outputs, out_tree: Any, deref: values.Deref) -> list[Any]:
    """Return JAX's sharding for each leaf of the results.

    Args:
        outputs: The shardings as sent, and the tree that they form.
        out_tree: The tree of the results, which the shardings' tree must be a prefix of.
        deref: Gives the object at a position in the capture.

    Raises:
        CaptureError: The order of some leaves differs between processes.
        ValueError: The shardings' tree is not a prefix of the results' tree.
    """
    if tree.leaf_order(tree.structure_of(out_tree)) is not None:
        raise CaptureError("in_shardings and out_shardings apply to a class whose leaf order differs between processes")
    leaves = [message and shardings.to_jax(message) for message in outputs.leaves]
    return [leaves[number] for number in _spread(tree.decode(outputs.tree, deref), out_tree)]


def places(device: Any, structure: tree.Structure) -> tuple[Sharding | None, ...]:
    """Return where `device_put` is to put each leaf of a tree; None for leaves that may stay where they are."""
    if device is None:
        return (None,) * tree.size(structure)
    leaves, prefix = _prefix(device)
    return tuple(_place(leaves[number]) for number in _spread(prefix, tree.treedef_of(structure)))


def _place(leaf: Any) -> Sharding | None:
    import jax

    if isinstance(leaf, jax.Device):
        return shardings.on_device(leaf)
    if isinstance(leaf, jax.sharding.PartitionSpec):
        mesh = jax.sharding.get_mesh()
        if mesh.empty:
            raise ValueError("Please set a mesh via `jax.set_mesh` if a PartitionSpec is passed to device_put")
        leaf = jax.sharding.NamedSharding(mesh, leaf)
    try:
        return _message(leaf)
    except CaptureError as error:
        if isinstance(leaf, jax.sharding.Sharding):
            raise
        raise ValueError(f"device_put takes None, devices, shardings and trees of them, not {leaf!r}") from error


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
    """Return the leaves of a tree, None included, and its structure."""
    import jax

    treedef: Any
    leaves, treedef = jax.tree.flatten(given, is_leaf=lambda x: x is None)
    return leaves, tree.structure_of(jax.tree.structure(treedef.unflatten(range(len(leaves)))))


def _spread(prefix: Any, over: Any) -> list[int]:
    """Return, for each leaf of a tree, the number of the prefix's leaf above it."""
    import jax

    numbers = tree.treedef_of(prefix).unflatten(range(tree.size(prefix)))
    chosen: list[int] = jax.tree.leaves(jax.tree.broadcast(numbers, over.unflatten(range(over.num_leaves))))
    return chosen


def _message(leaf: Any) -> Sharding | None:
    import jax

    if leaf is None or type(leaf).__name__ == "UnspecifiedValue":
        return None
    if not isinstance(leaf, (jax.sharding.Sharding, jax.sharding.PartitionSpec)):
        raise CaptureError(f"a {type(leaf).__name__} cannot be sent to the daemon")
    return shardings.of(leaf) or shardings.on_first()
