"""Whether a program calls back into Python while it runs, and may so raise whatever its author's code raises."""

from collections.abc import Iterator
from typing import Any

import jax


def calls_back(jaxpr: Any) -> bool:
    """Whether there is a callback in a jaxpr, or in one that its equations hold."""
    return any("callback" in equation.primitive.name for equation in _equations(jaxpr, set()))


def _equations(jaxpr: Any, seen: set[int]) -> Iterator[Any]:
    if id(jaxpr) in seen:
        return
    seen.add(id(jaxpr))
    for equation in jaxpr.eqns:
        yield equation
        for held in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_jaxpr):
            if _is_jaxpr(held):
                yield from _equations(held, seen)


def _is_jaxpr(value: Any) -> bool:
    return hasattr(value, "eqns")
