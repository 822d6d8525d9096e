"""Names for leaves of arguments, such as `params['w'][0]`, as in JAX's errors, and one-line texts of trees."""

import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from jitclient.capture.codec import values
from jitclient.jaxside import tree
from jitclient.jaxside.static_leaves import StaticLeaf


def leaf_names(fun: Callable[..., Any], structure: tree.Structure, statics: Iterable[int | str]) -> list[str]:
    """Return the names of the leaves of `(positional, keywords)`, in the tree's order, without static arguments.

    Example:
        >>> leaf_names(lambda params, n, x: ..., structure_of_call, statics=[1])
        ["params['b']", "params['w']", 'x']
    """
    assert structure is not None
    positional, keywords = structure.children
    assert positional is not None
    assert keywords is not None
    left_out = {where for where in statics if isinstance(where, int)}
    places = (place for place in itertools.count() if place not in left_out)
    name_of = _argument_names(fun)
    found: list[str] = []
    for place, child in zip(places, positional.children, strict=False):
        found += tree.paths(child, name_of(place))
    for key, child in zip(keywords.meta, keywords.children, strict=True):
        found += tree.paths(child, key)
    return found


def argument_name(fun: Callable[..., Any], place: int) -> str:
    """Return the name of a positional argument, given its position."""
    return _argument_names(fun)(place)


def shown(structure: tree.Structure, leaves: Iterator[str]) -> str:
    """Return a tree as text, such as `{'w': f32[8]}`, with the given words in place of its leaves."""
    if structure is tree.LEAF:
        return next(leaves)
    kind, meta, children = structure
    texts = [shown(child, leaves) for child in children]
    if kind is dict:
        return "{" + ", ".join(f"{key!r}: {text}" for key, text in zip(meta, texts, strict=True)) + "}"
    if kind is list:
        return f"[{', '.join(texts)}]"
    if kind is tuple:
        return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"
    if kind is type(None):
        return "None"
    if kind is StaticLeaf:
        return f"{meta[1]!r}"
    # Metadata of other kinds may raise an exception when it is tested for truth.
    kept = f"; {meta!r}" if values.is_self_contained(meta) and meta else ""
    return f"{kind.__name__}({', '.join(texts)}{kept})"


def _argument_names(fun: Callable[..., Any]) -> Callable[[int], str]:
    try:
        parameters = list(inspect.signature(fun).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "args")
    return lambda place: names[place] if place < len(names) else f"{rest}[{place - len(names)}]"
