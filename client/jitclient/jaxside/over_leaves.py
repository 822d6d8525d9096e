"""A function over the flat leaves of its arguments, which JAX's errors describe as the user's own function.

Both sides trace such a function: the daemon for captures, the client for functions that no capture can hold. The user's
tree classes are instantiated only during the trace, as under `jax.jit`. The compiled program takes flat leaves and runs
no user code.
"""

import inspect
import sys
from collections.abc import Callable, Iterable
from typing import Any

from jitclient.jaxside import tree
from jitclient.jaxside.naming import leaf_names
from jitclient.jaxside.options import Static, joined


class OverLeaves:
    """A wrapper of a user function: `function` takes and returns leaves in wire order.

    After the trace, `out_tree` is the tree of the results.
    """

    def __init__(
        self, fun: Callable[..., Any], name: str, structure: tree.Structure, statics: Iterable[Static]
    ) -> None:
        self.out_tree: Any = None
        self._fun = fun
        self._statics = list(statics)
        self._unflatten = tree.unflattener_of_sent(structure)

        def function(*leaves: Any) -> list[Any]:
            return self._call(leaves)

        names = leaf_names(fun, structure, [where for where, _ in self._statics])
        names = list(tree.as_sent(names, tree.leaf_order(structure)))
        function.__name__ = name
        # JAX finds the user's file and line through this attribute.
        function.__wrapped__ = fun  # type: ignore[attr-defined]
        function.__signature__ = inspect.Signature(list(map(_Leaf, names)))  # type: ignore[attr-defined]
        self.function = function

    def _call(self, leaves: tuple[Any, ...]) -> list[Any]:
        positional, keywords = self._unflatten(leaves)
        args, kwargs = joined(positional, keywords, self._statics)
        results, self.out_tree = tree.flatten(self._fun(*args, **kwargs))
        self._check(results)
        return list(tree.as_sent(results, tree.leaf_order(tree.structure_of(self.out_tree))))

    def _check(self, results: list[Any]) -> None:
        for number, result in enumerate(results):
            try:
                sys.modules["jax"].typeof(result)
            except TypeError:
                path = list(tree.paths(tree.structure_of(self.out_tree)))[number]
                raise TypeError(
                    f"function {_described(self._fun)} traced for jit returned a value of type {type(result)}"
                    f"{f' at output component {path}' if path else ''}, which is not a valid JAX type"
                ) from None


class _Leaf(inspect.Parameter):
    """A parameter whose name need not be an identifier, such as the path of a leaf."""

    def __init__(self, path: str) -> None:
        super().__init__("leaf", inspect.Parameter.POSITIONAL_ONLY)
        self._path = path

    @property
    def name(self) -> str:
        return self._path


def _described(fun: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(fun), "__code__", None)
    name = getattr(fun, "__name__", type(fun).__name__)
    return name if code is None else f"{name} at {code.co_filename}:{code.co_firstlineno}"
