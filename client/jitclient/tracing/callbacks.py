"""The callbacks of a program into Python."""

import functools
from collections.abc import Iterator
from typing import Any

from jitclient.codec import values
from jitclient.codec.user_code.code import canonical_code
from jitclient.digests import digest


def calls_back(jaxpr: Any) -> bool:
    """Whether a jaxpr, or one inside its equations, has a callback, which may raise anything."""
    return next(_callbacks(jaxpr), None) is not None


def looks_at_shardings(jaxpr: Any) -> bool:
    """Whether compiling it calls a function of the user's (`jax.debug.inspect_array_sharding`)."""
    return any(equation.primitive.name == "inspect_sharding" for equation in _equations(jaxpr, set()))


def callback_names(jaxpr: Any, ref: values.Ref) -> tuple[str, ...]:
    """The callbacks of a jaxpr in order, as text that is equal in all processes for equal functions.

    The text of a program does not include its callbacks.
    """
    return tuple(_identity(equation, ref) for equation in _callbacks(jaxpr))


def callbacks_for_people(jaxpr: Any) -> str:
    """The callbacks of a jaxpr, for messages."""
    found = [f"{equation.primitive.name} of {_name_of(_function_of(equation))}" for equation in _callbacks(jaxpr)]
    return ", ".join(dict.fromkeys(found))


def _callbacks(jaxpr: Any) -> Iterator[Any]:
    for equation in _equations(jaxpr, set()):
        if "callback" in equation.primitive.name or equation.primitive.name in ("debug_print", "inspect_sharding"):
            yield equation


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


def _identity(equation: Any, ref: values.Ref) -> str:
    if equation.primitive.name == "debug_print":
        return f"debug_print {sorted((name, repr(value)) for name, value in equation.params.items())}"
    fun = _function_of(equation)
    while isinstance(fun, functools.partial) and ref(fun) is None:
        fun = fun.func
    index = ref(fun)
    if index is not None:
        return f"captured {index}"
    code = getattr(fun, "__code__", None)
    if code is not None:
        return f"code {digest(canonical_code(code).blob, 8).hex()}"
    return f"{getattr(fun, '__module__', None)}.{_name_of(fun)}"


def _function_of(equation: Any) -> Any:
    """The user's function, which JAX has wrapped to flatten its arguments; or the text that it prints."""
    found = equation.params.get("callback", equation.params.get("fmt"))
    if getattr(found, "__module__", "") == "jax._src.debugging":
        held = dict(zip(found.__code__.co_freevars, found.__closure__ or (), strict=True))
        return held["callback"].cell_contents if "callback" in held else found
    return getattr(found, "callback_func", found)


def _name_of(fun: Any) -> str:
    return repr(fun) if isinstance(fun, str) else getattr(fun, "__qualname__", type(fun).__qualname__)
