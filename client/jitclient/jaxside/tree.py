"""Pytrees as leaves and a structure, in processes with or without jax.

A structure is `LEAF` or a `Branch`: the class of the node, its metadata (`meta`, as in `PyTreeDef.node_data`), and the
children's structures. Client and daemon both use structures, and exchange them as bytes.
"""

import collections
import contextlib
import itertools
import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple, TypeGuard

from jitclient.capture.codec import values
from jitclient.errors import CaptureError, ProtocolError
from jitclient.jaxside import node_order, static_leaves
from jitclient.jaxside.static_leaves import StaticLeaf


class Branch(NamedTuple):
    """An inner node of a structure."""

    kind: type
    meta: Any
    children: "tuple[Structure, ...]"


UNKNOWN = b""
"""The bytes that stand for a structure that is not sent."""

LEAF = None
Structure = Branch | None


@contextlib.contextmanager
def _limiting_depth() -> Iterator[None]:
    try:
        yield
    except RecursionError:
        raise CaptureError("a tree is nested too deeply for the limit that sys.setrecursionlimit sets") from None


# ---- trees to leaves and back


def flatten(tree: Any) -> tuple[list[Any], Hashable]:
    """Return the leaves of a tree in JAX's order, and its shape: hashable, and equal for trees of equal structure.

    The shape is a `PyTreeDef` if jax is imported, otherwise a `Structure`.

    Raises:
        CaptureError: The tree is nested too deeply.
    """
    jax = sys.modules.get("jax")
    if jax is not None:
        flat: tuple[list[Any], Hashable] = jax.tree_util.default_registry.flatten(tree)
        return flat
    leaves: list[Any] = []
    with _limiting_depth():
        return leaves, _flatten(tree, leaves)


def is_of_jitserver(shape: Hashable) -> TypeGuard[Structure]:
    """Return whether `flatten` returned this shape before jax was imported."""
    return shape is LEAF or isinstance(shape, Branch)


def shape_now(shape: Hashable) -> Hashable:
    """Return the shape that `flatten` would return now: jax may have been imported since it returned `shape`."""
    if "jax" in sys.modules and is_of_jitserver(shape):
        now: Hashable = treedef_of(shape)
        return now
    return shape


def structure_of(shape: Any) -> Structure:
    """Return the structure of a shape that `flatten` returned.

    Raises:
        CaptureError: The tree is nested too deeply.
    """
    with _limiting_depth():
        return _structure_of_shape(shape)


def _structure_of_shape(shape: Any) -> Structure:
    if is_of_jitserver(shape):
        return shape
    data = shape.node_data()
    if data is None:
        return LEAF
    kind, meta = data
    meta = tuple(meta) if kind is dict else meta
    return Branch(kind, meta, tuple(map(_structure_of_shape, shape.children())))


def unflattener(shape: Any) -> Callable[[Sequence[Any]], Any]:
    """Return a function from leaves to a tree with this structure, or with this shape that `flatten` returned."""
    if "jax" in sys.modules:
        treedef: Any = shape_now(shape)
        return treedef.unflatten  # type: ignore[no-any-return]
    return lambda leaves: _build(shape, iter(leaves))


def treedef_of(structure: Structure) -> Any:
    """Return a structure as JAX's own `PyTreeDef`. Imports jax."""
    from jax import tree_util

    from jitclient.capture.user_code.registry import register_late, unflatten_of_named_tuple

    if structure is LEAF:
        return tree_util.tree_structure(0)
    kind, meta, children = structure
    if kind is StaticLeaf:
        static_leaves.register()
    elif kind not in _BUILTIN:
        register_late(kind)
    if kind is type(None):
        return tree_util.tree_structure(None)
    # Below, JAX would treat a registered class as a plain named tuple.
    make = unflatten_of_named_tuple(kind)
    if make is not None:
        parts = [treedef.unflatten(range(treedef.num_leaves)) for treedef in map(treedef_of, children)]
        return tree_util.tree_structure(make(meta, parts))
    return tree_util.PyTreeDef.from_node_data_and_children(
        tree_util.default_registry, (kind, list(meta) if kind is dict else meta), list(map(treedef_of, children))
    )


def size(structure: Structure) -> int:
    """Return the number of leaves in a structure."""
    return 1 if structure is LEAF else sum(map(size, structure.children))


def paths(structure: Structure, prefix: str = "") -> Iterator[str]:
    """Yield the path of each leaf, as the user would write it: `params['w'][0]`."""
    if structure is LEAF:
        yield prefix
        return
    for label, child in zip(_labels(structure), structure.children, strict=True):
        yield from paths(child, prefix + label)


# ---- structures as bytes


def encode(
    structure: Structure, ref: values.Ref = values.no_ref, fallback: values.Fallback = values.no_fallback
) -> bytes:
    """Return a structure as bytes.

    Args:
        structure: The structure.
        ref: Gives the position of an object in the capture, or None.
        fallback: Gives the form of a value that cannot be encoded otherwise, or raises a CaptureError.

    Raises:
        CaptureError: The structure is nested too deeply, or `fallback` refused a value.
    """
    with _limiting_depth():
        return values.to_bytes(_data_of(structure, ref, fallback))


def _data_of(structure: Structure, ref: values.Ref, fallback: values.Fallback) -> values.Data:
    """Return the plain form of a structure: None for a leaf, and for a branch its class, `meta` and children.

    If the order of a branch's children may differ between processes, they are sorted by attribute name, and the
    attributes follow.
    """
    if structure is LEAF:
        return None
    kind, meta, children = structure
    if kind is type(None):
        return ()
    order = _order_of(structure)
    names: tuple[Any, ...] = ()
    if order is not None:
        names = order.sorted
        meta, children = order.rearranged(order.sorted, meta, children)
    parts = tuple([_data_of(child, ref, fallback) for child in children])
    return values.data_of(kind, ref, fallback), values.data_of(meta, ref, fallback), parts, *names


def decode(data: bytes, deref: values.Deref) -> Structure:
    """Return the structure that bytes encode, in the order of this process.

    Raises:
        CaptureError: A class flattens to other attributes in this process.
        ProtocolError: The bytes encode no structure.
    """
    with values.limiting_depth():
        return _structure_of(values.read(data), deref)


def _structure_of(data: values.Data, deref: values.Deref) -> Structure:
    if data is None:
        return LEAF
    if data == ():
        return Branch(type(None), None, ())
    try:
        raw_kind, raw_meta, raw_children, *raw_names = data
        children = tuple([_structure_of(child, deref) for child in raw_children])
        names = node_order.NodeOrder(*raw_names) if raw_names else None
    except (TypeError, ValueError) as error:
        raise ProtocolError(f"not the encoding of a tree: {data!r:.80}") from error
    kind, meta = values.value_of(raw_kind, deref), values.value_of(raw_meta, deref)
    if not issubclass(type(kind), type):
        raise ProtocolError(f"a node of a tree has a {type(kind).__qualname__} in place of a class")
    if names is not None:
        local = node_order.local_order(kind, frozenset(names.attributes))
        if local is None or local.sorted.children != names.children or names.meta not in (None, local.sorted.meta):
            raise CaptureError(f"{kind.__qualname__} flattens different attributes in the client and on the daemon")
        meta, children = names.rearranged(local, meta, children)
    return Branch(kind, meta, children)


def leaf_order(structure: Structure) -> tuple[int, ...] | None:
    """Return the positions of a tree's leaves in wire order; None if wire order is the tree's own order."""
    with _limiting_depth():
        order = tuple(_leaf_order(structure, itertools.count()))
    return None if order == tuple(range(len(order))) else order


def _leaf_order(structure: Structure, numbers: Iterator[int]) -> list[int]:
    if structure is LEAF:
        return [next(numbers)]
    children = tuple(_leaf_order(child, numbers) for child in structure.children)
    order = _order_of(structure)
    if order is not None:
        _, children = order.rearranged(order.sorted, structure.meta, children)
    return [number for child in children for number in child]


def _order_of(branch: Branch) -> node_order.NodeOrder | None:
    kind = branch.kind
    return None if kind in _NODES else node_order.order_of_node(kind, branch.meta, len(branch.children))


def as_sent(leaves: Sequence[Any], order: tuple[int, ...] | None) -> Sequence[Any]:
    """Return a tree's leaves in wire order, where `order` is the tree's `leaf_order`."""
    return leaves if order is None else [leaves[number] for number in order]


def as_here(leaves: Sequence[Any], order: tuple[int, ...] | None) -> Sequence[Any]:
    """Return leaves that are in wire order in this process's order, where `order` is the tree's `leaf_order`."""
    if order is None:
        return leaves
    found: list[Any] = [None] * len(leaves)
    for number, leaf in zip(order, leaves, strict=True):
        found[number] = leaf
    return found


def unflattener_of_sent(structure: Structure) -> Callable[[Sequence[Any]], Any]:
    """Return a function from leaves in wire order to the tree with this structure."""
    unflatten, order = unflattener(structure), leaf_order(structure)
    return unflatten if order is None else lambda leaves: unflatten(as_here(leaves, order))


def objects_in(structure: Structure) -> Iterator[Any]:
    """Yield the classes and metadata to which a message can refer only by their position in a capture."""
    if structure is LEAF:
        return
    if structure.kind not in _BUILTIN:
        yield structure.kind
    if not _can_name(structure.meta):
        yield structure.meta
    for child in structure.children:
        yield from objects_in(child)


# ---- without jax

_BUILTIN = (type(None), dict, list, tuple, collections.OrderedDict, collections.defaultdict)
_NODES = (*_BUILTIN, StaticLeaf)


def _flatten(tree: Any, leaves: list[Any]) -> Structure:
    kind = type(tree)
    # Most values are leaves, so test for them first.
    if kind not in _NODES and not (issubclass(kind, tuple) and hasattr(tree, "_fields")):
        leaves.append(tree)
        return LEAF
    meta: Any = None
    items: Any = tree
    if kind in (dict, collections.defaultdict):
        try:
            keys = tuple(sorted(tree))
        except TypeError as error:
            raise ValueError(f"the keys of a dict in a tree must be comparable: {list(tree)!r:.200}") from error
        meta = keys if kind is dict else (tree.default_factory, keys)
        items = [tree[key] for key in keys]
    elif kind is collections.OrderedDict:
        meta, items = tuple(tree), tree.values()
    elif kind is StaticLeaf:
        meta, items = tree.meta, ()
    elif tree is None:
        items = ()
    return Branch(kind, meta, tuple([_flatten(item, leaves) for item in items]))


def _build(structure: Structure, leaves: Iterator[Any]) -> Any:
    if structure is LEAF:
        return next(leaves)
    kind, meta, children = structure
    parts = [_build(child, leaves) for child in children]
    if kind is type(None):
        return None
    if kind is StaticLeaf:
        return meta[1]
    if kind in (dict, collections.OrderedDict):
        return kind(zip(meta, parts, strict=True))
    if kind is collections.defaultdict:
        factory, keys = meta
        return collections.defaultdict(factory, zip(keys, parts, strict=True))
    if kind in (list, tuple):
        return kind(parts)
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return kind(*parts)
    raise CaptureError(f"{kind.__qualname__} is a tree node that only jax can build. Import jax first.")


def _labels(branch: Branch) -> list[str]:
    kind, meta, children = branch
    if kind in (dict, collections.OrderedDict):
        return [f"[{key!r}]" for key in meta]
    if kind is collections.defaultdict:
        return [f"[{key!r}]" for key in meta[1]]
    fields = getattr(kind, "_fields", None) or list(getattr(kind, "__dataclass_fields__", ()))
    if kind not in (list, tuple) and len(fields) == len(children):
        return [f".{field}" for field in fields]
    return [f"[{i}]" for i in range(len(children))]


def _can_name(meta: Any) -> bool:
    if isinstance(meta, tuple):
        return all(map(_can_name, meta))
    return values.is_self_contained(meta) or (isinstance(meta, type) and meta.__module__ == "builtins")
