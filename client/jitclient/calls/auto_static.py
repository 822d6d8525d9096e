"""`jit(auto_static=True)`: leaves of the arguments that are not arrays are static."""

import sys
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, cast

import numpy as np

from jitclient.arrays.array import Array
from jitclient.calls.general_path import GeneralPath
from jitclient.calls.remote_function import P, R, RemoteFunction
from jitclient.codec.reducers.jitted import own_attributes
from jitclient.tracing.options import JitOptions, Static, joined
from jitclient.trees import static_leaves, tree
from jitclient.trees.naming import leaf_names
from jitclient.trees.static_leaves import StaticLeaf


class AutoStaticFunction(RemoteFunction[P, R]):
    """A jitted function whose arguments may have static leaves. Made by `jit`."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = self.general_path().marked(args, kwargs)
        return super().__call__(*args, **kwargs)

    def general_path(self) -> "_AutoStaticPath":
        if self._path is None:
            self._path = _AutoStaticPath(self._fun, self.__name__, self._options, self._deps)
        return cast(_AutoStaticPath, self._path)

    def __reduce__(self) -> Any:
        return rebuild, (self._fun, self._options.given()), own_attributes(self, self._fun) or None


class _AutoStaticPath(GeneralPath):
    @property
    def _jitted_here(self) -> Any:
        static_leaves.register()
        return super()._jitted_here

    def marked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Wrap each leaf that is not an array in a `StaticLeaf`; arguments named as static stay unchanged."""
        positional, keywords, statics = self._options.split(args, kwargs)
        leaves, shape = tree.flatten((positional, keywords))
        if all(map(_is_array, leaves)):
            return args, kwargs
        if "jax" in sys.modules:
            static_leaves.register()
        marked = [leaf if _is_array(leaf) else self._static(leaf, n, shape, statics) for n, leaf in enumerate(leaves)]
        positional, keywords = tree.unflattener(shape)(marked)
        return joined(positional, keywords, statics)

    def _static(self, leaf: Any, number: int, shape: Hashable, statics: Iterable[Static]) -> StaticLeaf:
        try:
            hash(leaf)
        except TypeError as error:
            names = leaf_names(self._fun, tree.structure_of(shape), [where for where, _ in statics])
            raise ValueError(
                f"{self._name}: argument {names[number]} is no array, so it is static, but a "
                f"{type(leaf).__qualname__} cannot be hashed ({error})"
            ) from error
        return StaticLeaf(leaf)


def rebuild(fun: Callable[..., Any], options: Mapping[str, Any]) -> AutoStaticFunction[..., Any]:
    """Rebuild the function from a capture or a pickle."""
    return AutoStaticFunction(fun, JitOptions(**options))


def _is_array(leaf: Any) -> bool:
    if isinstance(leaf, (Array, np.ndarray, np.generic)) or hasattr(leaf, "__jax_array__"):
        return True
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(leaf, jax.Array)  # includes tracers
