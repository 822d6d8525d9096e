"""Equinox's `filter_jit` on the daemon."""

import functools
import inspect
import types
import warnings
from collections.abc import Callable
from typing import Any, Generic

import equinox
import jax

from jitclient.calls.remote_function import P, R
from jitclient.decorator import jit
from jitclient.trees import static_leaves

_DONATED = {
    "all": (0, 1, 2, 3),
    "all-except-first": (0, 2, 3),
    "warn": (0, 1, 2, 3),
    "warn-except-first": (0, 2, 3),
    "none": (),
}
"""For each way to donate, the arguments of `_run` that are."""


def filter_jit(fun: Any = None, *, donate: str = "none") -> Any:
    """Runs a function on the daemon; arrays in its arguments, in modules too, are inputs, and all else is static.

    Works bare, with the keyword, and as a call, as `equinox.filter_jit` does, whose counterpart it is.

    Args:
        fun: a function of trees, or a module that can be called. Results may hold anything; what is no array in them
            is what it was in the trace.
        donate: "all", "all-except-first" (the first argument), "warn", "warn-except-first" or "none". With "warn", JAX
            warns of arrays whose memory no result could take.

    Raises:
        ValueError: there is no such way to donate; in a call, a static part of the arguments cannot be hashed.

    Example:
        >>> @jitclient.eqx.filter_jit(donate="all")
        ... def step(model, state, x): ...
    """
    if donate not in _DONATED:
        raise ValueError(f"filter_jit(..., donate={donate!r}): it must be one of {', '.join(map(repr, _DONATED))}")
    return functools.partial(_FilterJitted, donate=donate) if fun is None else _FilterJitted(fun, donate)


class _FilterJitted(Generic[P, R]):
    """A function whose calls run on the daemon. Made by `filter_jit`."""

    __wrapped__: Callable[P, R]

    def __init__(self, fun: Callable[P, R], donate: str) -> None:
        functools.update_wrapper(self, fun, updated=())
        self._signature = inspect.signature(fun)
        self._jitted = jit(_named_as(fun), auto_static=True, donate_argnums=_DONATED[donate])
        self._is_quiet = donate.startswith("all")

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        given = self._given(args, kwargs)
        if not self._is_quiet:
            return self._jitted(*given)  # type: ignore[no-any-return]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Some donated buffers were not usable")
            return self._jitted(*given)  # type: ignore[no-any-return]

    def lower(self, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        """The function for arguments of this kind, ready to be compiled; nothing runs."""
        return self._jitted.lower(*self._given(args, kwargs))

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        return f"filter_jit({self.__wrapped__!r})"

    def _given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        bound = self._signature.bind(*args, **kwargs)
        return self.__wrapped__, bound.args[:1], bound.args[1:], bound.kwargs


def _named_as(fun: Callable[..., Any]) -> Callable[..., Any]:
    def run(fun: Callable[..., Any], first: Any, rest: Any, keywords: Any) -> Any:
        return jax.tree.map(_as_result, fun(*first, *rest, **keywords))

    run.__name__ = run.__qualname__ = getattr(fun, "__name__", type(fun).__name__)
    return run


def _as_result(leaf: Any) -> Any:
    static_leaves.register()
    return leaf if equinox.is_array(leaf) else static_leaves.StaticLeaf(leaf)
