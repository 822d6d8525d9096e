"""Function under JAX's own `jit` in this process: for calls that run here, for the own trace, and for stages."""

import contextlib
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from jitclient.arrays.array import Array
from jitclient.jaxside import context, interop, static_leaves, tree
from jitclient.jaxside.avals import abstract
from jitclient.jaxside.naming import leaf_names
from jitclient.jaxside.options import JitOptions, joined
from jitclient.jaxside.original_jit import original_jit

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class InProcess:
    """Function under JAX's own `jit` in this process, which takes handles among its arguments."""

    def __init__(self, fun: Callable[..., Any], name: str, options: JitOptions, has_static_leaves: bool) -> None:
        self._fun = fun
        self._name = name
        self._options = options
        self._has_static_leaves = has_static_leaves
        self._made: Any = None
        self._settings: context.Context = ()  # of the function's last trace

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function. Imports jax."""
        jitted = self._jitted
        given, keywords = _replace_handles(self._marked_again(args, kwargs), Array.in_process)
        return jitted(*given, **keywords)

    def stage(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a method of JAX's own jitted function, such as "lower"; return its result."""
        make = getattr(self._jitted, name)
        given, keywords = for_trace(self._marked_again(args, kwargs))
        return make(*given, **keywords)

    def marked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        """Return the arguments with static leaves marked, if the function may have static leaves.

        Each leaf that is not an array is wrapped in a `StaticLeaf`. Arguments named as static are unchanged.

        Raises:
            ValueError: a static leaf cannot be hashed.
        """
        if not self._has_static_leaves:
            return args, kwargs
        positional, keywords, statics = self._options.split(args, kwargs)
        leaves, shape = tree.flatten((positional, keywords))
        numbers = [number for number, leaf in enumerate(leaves) if not _is_array(leaf)]
        if not numbers:
            return args, kwargs
        for number in numbers:
            try:
                hash(leaves[number])
            except TypeError as error:
                names = leaf_names(self._fun, tree.structure_of(shape), [where for where, _ in statics])
                raise ValueError(
                    f"{self._name}: argument {names[number]} is not an array, so it is static, but a "
                    f"{type(leaves[number]).__qualname__} cannot be hashed ({error})"
                ) from error
            leaves[number] = static_leaves.StaticLeaf(leaves[number])
        if "jax" in sys.modules:
            static_leaves.register()
        positional, keywords = tree.unflattener(shape)(leaves)
        return joined(positional, keywords, statics)

    def for_trace(self, settings: context.Context) -> Any:
        """Return the function under JAX's own `jit`, ready for a trace under these settings.

        JAX does not compare all settings itself, so a change of settings clears its cache.
        """
        jitted = self._jitted
        if settings != self._settings:
            self._settings = settings
            # JAX itself reports an object without a hash.
            with contextlib.suppress(TypeError):
                jitted.clear_cache()
        return jitted

    def clear_cache(self) -> None:
        """Make JAX trace the function again, because it does not see rebound objects."""
        if self._made is not None:
            self._made.clear_cache()

    @property
    def _jitted(self) -> Any:
        if self._made is None:
            if self._has_static_leaves:
                static_leaves.register()
            with warnings.catch_warnings():
                # The user got the warnings about devices when the function was decorated.
                if self._options.about_devices():
                    warnings.simplefilter("ignore")
                self._made = original_jit(self._fun, **self._options.given())
        return self._made

    def _marked_again(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        """Return the arguments for this process's own jax: with static leaves marked, or plain if jit is disabled."""
        if not self._has_static_leaves:
            return args, kwargs
        import jax

        # This map turns static leaves into plain values.
        plain: Arguments = jax.tree.map(lambda leaf: leaf, (args, kwargs))
        return plain if context.jit_is_disabled() else self.marked(*plain)


def _is_array(leaf: Any) -> bool:
    if isinstance(leaf, (Array, np.ndarray, np.generic)) or hasattr(leaf, "__jax_array__"):
        return True
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(leaf, jax.Array)  # includes tracers


def for_trace(arguments: Arguments) -> Arguments:
    """Return arguments that JAX can trace: the same ones, unless this version of JAX does not accept handles."""
    if interop.Array is not None:
        return arguments
    return _replace_handles(arguments, lambda handle: abstract(handle.spec))


def _replace_handles(arguments: Arguments, of_handle: Callable[[Array], Any]) -> Arguments:
    """Return the arguments, with other objects in place of handles if there are any. Static leaves stay marked."""
    import jax

    if Array not in map(type, jax.tree.leaves(arguments)):
        return arguments
    found: Arguments = jax.tree.map(
        lambda leaf: of_handle(leaf) if type(leaf) is Array else leaf,
        arguments,
        is_leaf=lambda leaf: type(leaf) is static_leaves.StaticLeaf,
    )
    return found
