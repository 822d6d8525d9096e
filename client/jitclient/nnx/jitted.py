"""Function of modules whose calls run on the daemon, and change the modules in place, as with `flax.nnx.jit`."""

import functools
from collections.abc import Callable
from typing import Any, Generic, overload

import jax
from flax import nnx

from jitclient.calls.decorator import jit as jit_on_daemon
from jitclient.calls.remote_function import P, R
from jitclient.core.tracebacks import api_boundary
from jitclient.jaxside import trace_state
from jitclient.nnx.graph import Graph, NodeLeaves, is_node

_original_jit = nnx.jit
"""Flax's own function, even if a program assigns `nnx.jit = jitclient.nnx.jit`."""

_KEPT = 8
"""Maximum number of sets of nodes whose structure each function keeps."""


@overload
def jit(fun: Callable[P, R], **options: Any) -> "Jitted[P, R]": ...
@overload
def jit(**options: Any) -> "Callable[[Callable[P, R]], Jitted[P, R]]": ...
@api_boundary
def jit(fun: Any = None, **options: Any) -> Any:
    """Return a function of modules, optimizers, metrics and arrays that runs on the daemon.

    Changes that the function makes to its arguments apply to the caller's own objects: values, attributes that it adds
    or removes, references that it shares or replaces. Their arrays stay on the daemon from one call to the next.

    Args:
        fun: a function, or a method of a module's class.
        **options: the keywords of `flax.nnx.jit`. With a `nnx.StateSharding`, or with shardings in tree mode
            (`graph=False` or `graph_updates=False`), calls run in this process, through flax's own function.

    Returns:
        A function with the parameters of `fun`, whose results are trees of `jitclient.Array` and of nodes.

    Raises:
        ValueError: `fun` is a bound method.
        TypeError: flax has no such keyword.

    Example:
        >>> @jitclient.nnx.jit
        ... def train_step(model, optimizer, x, y): ...
    """
    if fun is None:
        return functools.partial(jit, **options)
    # Also refuses the options that flax refuses.
    own: Any = _original_jit(fun, **options)
    shardings = jax.tree.leaves([options.get("in_shardings"), options.get("out_shardings")])
    is_graph = hasattr(own, "kwarg_shardings")
    if any(isinstance(one, nnx.StateSharding) for one in shardings) or (shardings and not is_graph):
        return own
    if is_graph:
        return Jitted(fun, own, options)
    # In tree mode, modules are pytrees.
    own.jitted_fn = jit_on_daemon(own.jitted_fn.__wrapped__, **_of_jax(options))
    return own


def _of_jax(options: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key not in ("graph", "graph_updates")}


class Jitted(Generic[P, R]):
    """Function of modules whose calls run on the daemon, made by `jitclient.nnx.jit`."""

    __wrapped__: Callable[P, R]

    def __init__(self, fun: Callable[P, R], own: Any, options: dict[str, Any]) -> None:
        functools.update_wrapper(self, fun, updated=())
        self._own = own
        self._options = options
        on_daemon = _of_jax(options)
        if own.in_shardings is not None or own.out_shardings is not None:
            on_daemon["out_shardings"] = own.in_shardings, None, own.out_shardings
        self._jitted = jit_on_daemon(_on_trees(fun), **on_daemon)
        self._graphs: dict[tuple[int, ...], Graph] = {}

    @api_boundary
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function as `flax.nnx.jit` would. Errors are those of `jitclient.jit`."""
        if trace_state.is_active():
            return self._own(*args, **kwargs)  # type: ignore[no-any-return]
        # Consumes the context that `nnx.cached_partial` left for its function.
        with nnx.update_context(self):
            pass
        nodes, graph, pure_args, pure_kwargs = self._pure(args, kwargs)
        *changed, result = self._jitted(*pure_args, **pure_kwargs)
        after = _made_in(changed)
        if not _made_in(result) and graph.update(after):
            return result  # type: ignore[no-any-return]
        return _merge(nodes, after, result)  # type: ignore[no-any-return]

    def on_daemon(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the function, arguments and keywords that a call has on the daemon, for `explain`."""
        _, _, pure_args, pure_kwargs = self._pure(args, kwargs)
        return self._jitted, pure_args, pure_kwargs

    def _pure(self, args: Any, kwargs: Any) -> tuple[list[Any], Graph, Any, Any]:
        """Return the nodes of the arguments, their graph, and the arguments with each node replaced by its leaves."""
        leaves, shape = jax.tree.flatten((args, kwargs), is_leaf=is_node)
        nodes = [leaf for leaf in leaves if is_node(leaf)]
        graph = self._known_graph(nodes)
        if graph is None:
            if self._own.in_shardings is not None:
                _check_aliasing((args, kwargs), (self._own.in_shardings, None))
            graph = self._new_graph(nodes)
        given = iter(graph.leaves())
        pure = [next(given) if is_node(leaf) else leaf for leaf in leaves]
        return nodes, graph, *jax.tree.unflatten(shape, pure)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        # `lower`, `trace` and `eval_shape` run in this process.
        return getattr(self._own, name)

    def __reduce__(self) -> Any:
        return _rebuild, (self.__wrapped__, self._options)

    def __repr__(self) -> str:
        return f"jitclient.nnx.jit({self.__wrapped__!r})"

    def _known_graph(self, nodes: list[Any]) -> Graph | None:
        graph = self._graphs.get(tuple(map(id, nodes)))
        return graph if graph is not None and graph.is_current() else None

    def _new_graph(self, nodes: list[Any]) -> Graph:
        key = tuple(map(id, nodes))
        forget = functools.partial(self._graphs.pop, key)
        forget(None)
        graph = Graph(nodes, forget)
        if graph.is_simple:
            self._graphs[key] = graph
            while len(self._graphs) > _KEPT:
                del self._graphs[next(iter(self._graphs))]
        return graph


def _rebuild(fun: Callable[..., Any], options: dict[str, Any]) -> Any:
    return jit(fun, **options)


def _check_aliasing(tree: Any, shardings: Any) -> None:
    """Refuse, as flax does, a Variable that would get two shardings."""
    nnx.extract.to_tree(tree, prefix=shardings, split_fn=lambda *_: None)


def _on_trees(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of pytrees with `NodeLeaves` for nodes. Its results include the nodes of its arguments."""

    @functools.wraps(fun)
    def on_trees(*pure_args: Any, **pure_kwargs: Any) -> Any:
        given, flattened = nnx.graphlib.IndexMap(), nnx.graphlib.RefMap()

        def node_of(leaf: Any) -> Any:
            return nnx.unflatten(leaf.graphdef, leaf.states[0], index_ref=given) if _is_made(leaf) else leaf

        args, kwargs = jax.tree.map(node_of, (pure_args, pure_kwargs), is_leaf=_is_made)
        result = fun(*args, **kwargs)
        before = nnx.graphlib.RefMap.from_indexmap(given)

        def leaves_of(value: Any, other: Any) -> Any:
            if not is_node(value):
                return other
            graphdef, leaves = nnx.flatten(
                value, ref_index=flattened, ref_outer_index=before, with_paths=False, graph=True
            )
            return NodeLeaves(graphdef, (leaves,))

        changed = jax.tree.map(lambda value: leaves_of(value, None), (args, kwargs), is_leaf=is_node)
        return *changed, jax.tree.map(lambda value: leaves_of(value, value), result, is_leaf=is_node)

    return on_trees


def _merge(nodes: list[Any], changed: list[NodeLeaves], result: Any) -> Any:
    """Update the caller's nodes to the structure that the function left; return the result with its nodes."""
    index = nnx.graphlib.RefMap()
    for node in nodes:
        nnx.flatten(node, ref_index=index, with_paths=False, graph=True)
    callers, merged = nnx.graphlib.IndexMap.from_refmap(index), nnx.graphlib.IndexMap()

    def node_of(leaf: Any) -> Any:
        if not _is_made(leaf):
            return leaf
        return nnx.unflatten(leaf.graphdef, leaf.states[0], index_ref=merged, outer_index_outer_ref=callers)

    for each in changed:
        node_of(each)
    return jax.tree.map(node_of, result, is_leaf=_is_made)


def _made_in(tree: Any) -> list[NodeLeaves]:
    return [leaf for leaf in jax.tree.leaves(tree, is_leaf=_is_made) if _is_made(leaf)]


def _is_made(leaf: Any) -> bool:
    return type(leaf) is NodeLeaves
