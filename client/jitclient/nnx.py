"""Flax's `nnx.jit` on the daemon: modules among the arguments are changed in place, as flax does."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, Generic

from flax import nnx

from jitclient.calls.remote_function import P, R
from jitclient.decorator import jit as jit_on_daemon

_INNER = "jitclient.nnx"


def jit(fun: Any = None, **options: Any) -> Any:
    """Runs a function of modules, optimizers, metrics and arrays on the daemon.

    What the function changes in them is changed in the caller's own objects: values, attributes that it adds or
    removes, references that it shares or replaces. Their arrays stay on the daemon from one call to the next.

    Args:
        fun: a function, or a method of a module's class.
        **options: keywords of `jax.jit`. In `in_shardings` and `out_shardings`, a `nnx.StateSharding` for a module.

    Raises:
        TypeError: `fun` is a bound method.

    Example:
        >>> @jitclient.nnx.jit
        ... def train_step(model, optimizer, x, y): ...
    """
    if fun is None:
        return functools.partial(jit, **options)
    if inspect.ismethod(fun) and not isinstance(fun.__self__, type):
        raise TypeError(
            f"jitclient.nnx.jit of the bound method {fun.__qualname__}: what it changes in its object would be lost. "
            f"Jit the function of the class, and call it with the object"
        )
    return _NnxJitted(fun, options)


class _NnxJitted(Generic[P, R]):
    """A function whose calls run on the daemon. Made by `jit`."""

    __wrapped__: Callable[P, R]

    def __init__(self, fun: Callable[P, R], options: dict[str, Any]) -> None:
        functools.update_wrapper(self, fun, updated=())
        self._jitted = jit_on_daemon(_on_trees(fun), **options)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        with nnx.update_context(self):
            pure_args, pure_kwargs = nnx.to_tree((args, kwargs), split_fn=_split, ctxtag=self)
            made = self._jitted(*pure_args, **pure_kwargs)
            _, _, result = nnx.from_tree(made, merge_fn=_merge, is_inner=False, ctxtag=self)
        return result  # type: ignore[no-any-return]

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)


def _on_trees(fun: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fun)
    def on_trees(*pure_args: Any, **pure_kwargs: Any) -> Any:
        with nnx.update_context(_INNER):
            args, kwargs = nnx.from_tree((pure_args, pure_kwargs), merge_fn=_merge, is_inner=True, ctxtag=_INNER)
            result = fun(*args, **kwargs)
            args, kwargs = _nodes_of((args, kwargs))
            return nnx.to_tree((args, kwargs, result), split_fn=_split, ctxtag=_INNER)

    return on_trees


def _nodes_of(tree: Any) -> Any:
    """A tree without what is no graph node: only these can have changed."""
    import jax

    return jax.tree.map(lambda leaf: leaf if _is_node(leaf) else None, tree, is_leaf=_is_node)


def _is_node(leaf: Any) -> bool:
    return isinstance(leaf, nnx.Variable) or nnx.graphlib.is_graph_node(leaf)


def _split(context: nnx.SplitContext, path: Any, prefix: Any, node: Any) -> nnx.NodeStates:
    return nnx.NodeStates.from_split(*context.flatten(node, with_paths=False))


def _merge(context: nnx.MergeContext, path: Any, prefix: Any, states: Any) -> Any:
    return context.unflatten(states.graphdef, *states.states)
