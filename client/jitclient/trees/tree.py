"""Pytrees, with jax where the program has loaded it and without it where not: leaves, and a structure.

A structure is `LEAF` or a `Branch`: the class of the node, what the node keeps beside its children (`meta`, the same
that `PyTreeDef.node_data` gives), and the children's structures. Both sides of the wire use it; only its message form
crosses.
"""

import collections
import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

from jitclient.errors import CaptureError
from jitclient.trees import static_leaves
from jitclient.trees.static_leaves import StaticLeaf
from jitclient.wire import values


class Branch(NamedTuple):
    """An inner node of a structure."""

    kind: type
    meta: Any
    children: "tuple[Structure, ...]"


LEAF = None
Structure = Branch | None


# ---- trees to leaves and back


def flatten(tree: Any) -> tuple[list[Any], Hashable]:
    """The leaves of a tree in JAX's order, and its shape: equal for trees of equal structure, and hashable."""
    jax = sys.modules.get("jax")
    if jax is not None:
        flat: tuple[list[Any], Hashable] = jax.tree_util.default_registry.flatten(tree)
        return flat
    leaves: list[Any] = []
    return leaves, _flatten(tree, leaves)


def shape_now(shape: Hashable) -> Hashable:
    """What `flatten` would return by now beside the leaves: jax may have been imported since it returned `shape`."""
    if "jax" in sys.modules and (shape is LEAF or isinstance(shape, Branch)):
        now: Hashable = treedef_of(shape)
        return now
    return shape


def structure_of(shape: Any) -> Structure:
    """The structure behind what `flatten` returned."""
    if shape is LEAF or isinstance(shape, Branch):
        return shape
    data = shape.node_data()
    if data is None:
        return LEAF
    kind, meta = data
    meta = tuple(meta) if kind is dict else meta
    return Branch(kind, meta, tuple(map(structure_of, shape.children())))


def unflattener(structure: Structure) -> Callable[[Sequence[Any]], Any]:
    """A function from leaves to the tree of that structure."""
    if "jax" in sys.modules:
        unflatten: Callable[[Sequence[Any]], Any] = treedef_of(structure).unflatten
        return unflatten
    return lambda leaves: _build(structure, iter(leaves))


def treedef_of(structure: Structure) -> Any:
    """JAX's own form of a structure. Imports jax."""
    from jax import tree_util

    if structure is LEAF:
        return tree_util.tree_structure(0)
    kind, meta, children = structure
    if kind is StaticLeaf:
        static_leaves.register()
    meta = list(meta) if kind is dict else meta
    data = None if kind is type(None) else (kind, meta)
    if data is None:
        return tree_util.tree_structure(None)
    return tree_util.PyTreeDef.from_node_data_and_children(
        tree_util.default_registry, data, list(map(treedef_of, children))
    )


def size(structure: Structure) -> int:
    """How many leaves there are."""
    return 1 if structure is LEAF else sum(map(size, structure.children))


def paths(structure: Structure, prefix: str = "") -> Iterator[str]:
    """The way to each leaf, as the user would write it: `params['w'][0]`."""
    if structure is LEAF:
        yield prefix
        return
    for label, child in zip(_labels(structure), structure.children, strict=True):
        yield from paths(child, prefix + label)


# ---- structures as messages


def encode(structure: Structure, ref: values.Ref = values.nowhere) -> values.Node | None:
    """The message for a structure.

    Raises:
        CaptureError: a node's class or `meta` can neither be sent nor found in the capture.
    """
    if structure is LEAF:
        return None
    kind, meta, children = structure
    kind_message = values.Named("builtins", "NoneType") if kind is type(None) else values.encode(kind, ref)
    return values.Node(kind_message, values.encode(meta, ref), tuple(encode(child, ref) for child in children))


def decode(node: values.Node | None, deref: values.Deref) -> Structure:
    """The structure of a message."""
    if node is None:
        return LEAF
    if node.kind == values.Named("builtins", "NoneType"):
        return Branch(type(None), None, ())
    kind = values.decode(node.kind, deref)
    return Branch(kind, values.decode(node.meta, deref), tuple(decode(child, deref) for child in node.children))


def objects_in(structure: Structure) -> Iterator[Any]:
    """The classes and metadata that a message can name only by their place in a capture."""
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
    if kind not in _NODES:  # first, as most are leaves
        if issubclass(kind, tuple) and hasattr(tree, "_fields"):
            return Branch(kind, None, tuple([_flatten(item, leaves) for item in tree]))
        leaves.append(tree)
        return LEAF
    if kind in (list, tuple):
        return Branch(kind, None, tuple([_flatten(item, leaves) for item in tree]))
    if tree is None:
        return Branch(kind, None, ())
    if kind is collections.OrderedDict:
        return Branch(kind, tuple(tree), tuple([_flatten(item, leaves) for item in tree.values()]))
    if kind is StaticLeaf:
        return Branch(kind, tree.meta, ())
    keys = _sorted_keys(tree)
    meta = keys if kind is dict else (tree.default_factory, keys)
    return Branch(kind, meta, tuple([_flatten(tree[key], leaves) for key in keys]))


def _sorted_keys(tree: dict[Any, Any]) -> tuple[Any, ...]:
    try:
        return tuple(sorted(tree))
    except TypeError as error:
        raise ValueError(f"the keys of a dict in a tree must be comparable: {list(tree)!r:.200}") from error


def _build(structure: Structure, leaves: Iterator[Any]) -> Any:
    if structure is LEAF:
        return next(leaves)
    kind, meta, children = structure
    parts = [_build(child, leaves) for child in children]
    if kind is type(None):
        return None
    if kind is StaticLeaf:
        return static_leaves.value_of(meta)
    if kind in (dict, collections.OrderedDict):
        return kind(zip(meta, parts, strict=True))
    if kind is collections.defaultdict:
        factory, keys = meta
        return collections.defaultdict(factory, zip(keys, parts, strict=True))
    if kind in (list, tuple):
        return kind(parts)
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return kind(*parts)
    raise CaptureError(f"{kind.__qualname__} is a tree node that only jax can build, and jax is not loaded here")


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
    return values.is_plain(meta) or (isinstance(meta, type) and meta.__module__ == "builtins")
