"""Functions of `jit(auto_static=True)`: leaves of the arguments that are not arrays are static."""

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from jitclient.arrays.array import Array
from jitclient.calls.deps import Deps
from jitclient.calls.remote_function import P, R, RemoteFunction
from jitclient.capture.describe.jitted import program_attributes
from jitclient.jaxside import static_leaves, tree
from jitclient.jaxside.naming import leaf_names
from jitclient.jaxside.options import JitOptions, joined
from jitclient.jaxside.static_leaves import StaticLeaf


class AutoStaticFunction(RemoteFunction[P, R]):
    """Jitted function whose arguments may have static leaves, made by `jit`."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = self.general_path().in_process.marked(args, kwargs)
        return super().__call__(*args, **kwargs)

    def __reduce__(self) -> Any:
        made_of = self._fun, self._options.given(), *([self._deps.declared] if self._deps is not None else ())
        return rebuild, made_of, program_attributes(self, self._fun) or None


def rebuild(
    fun: Callable[..., Any], options: Mapping[str, Any], deps: tuple[Any, ...] | None = None
) -> AutoStaticFunction[..., Any]:
    """Rebuild the function from a capture or a pickle."""
    return AutoStaticFunction(fun, JitOptions(**options), Deps.of(deps), has_static_leaves=True)


def marked(
    fun: Callable[..., Any], name: str, options: JitOptions, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Wrap each leaf that is not an array in a `StaticLeaf`; leave arguments named as static unchanged.

    Raises:
        ValueError: a static leaf cannot be hashed.
    """
    positional, keywords, statics = options.split(args, kwargs)
    leaves, shape = tree.flatten((positional, keywords))
    numbers = [number for number, leaf in enumerate(leaves) if not _is_array(leaf)]
    if not numbers:
        return args, kwargs
    for number in numbers:
        try:
            hash(leaves[number])
        except TypeError as error:
            names = leaf_names(fun, tree.structure_of(shape), [where for where, _ in statics])
            raise ValueError(
                f"{name}: argument {names[number]} is not an array, so it is static, but a "
                f"{type(leaves[number]).__qualname__} cannot be hashed ({error})"
            ) from error
        leaves[number] = StaticLeaf(leaves[number])
    if "jax" in sys.modules:
        static_leaves.register()
    positional, keywords = tree.unflattener(shape)(leaves)
    return joined(positional, keywords, statics)


def _is_array(leaf: Any) -> bool:
    if isinstance(leaf, (Array, np.ndarray, np.generic)) or hasattr(leaf, "__jax_array__"):
        return True
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(leaf, jax.Array)  # includes tracers
