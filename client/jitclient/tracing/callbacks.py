"""The callbacks of a program into Python."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

from jitclient.codec import values
from jitclient.codec.user_code.code import canonical_code
from jitclient.digests import digest


def calls_back(jaxpr: Any) -> bool:
    """Whether a jaxpr, or one inside its equations, has a callback, which may raise anything."""
    return next(_callbacks(jaxpr), None) is not None


def callback_names(jaxpr: Any, ref: values.Ref) -> tuple[str, ...]:
    """The callbacks of a jaxpr in order, as text that is equal in all processes for equal functions.

    The text of a program does not include its callbacks.
    """
    return tuple(_name(callback, ref) for callback in _callbacks(jaxpr))


def _callbacks(jaxpr: Any) -> Iterator[Any]:
    for equation in _equations(jaxpr, set()):
        if "callback" in equation.primitive.name:
            yield equation.params.get("callback")


def _equations(jaxpr: Any, seen: set[int]) -> Iterator[Any]:
    import jax

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


def _name(callback: Any, ref: values.Ref) -> str:
    fun: Callable[..., Any] = getattr(callback, "callback_func", callback)  # JAX flattens its arguments
    while isinstance(fun, functools.partial) and ref(fun) is None:
        fun = fun.func
    index = ref(fun)
    if index is not None:
        return f"captured {index}"
    code = getattr(fun, "__code__", None)
    if code is not None:
        return f"code {digest(canonical_code(code).blob, 8).hex()}"
    return f"{getattr(fun, '__module__', None)}.{getattr(fun, '__qualname__', type(fun).__qualname__)}"
