"""Callbacks from a program into Python: which ones a jaxpr has, and how to compare them between processes."""

import functools
from collections.abc import Callable, Iterator
from types import CellType, FunctionType
from typing import Any

from jitclient.capture.codec import values
from jitclient.capture.codec.pickler import to_bytes
from jitclient.capture.codec.plain import is_plain
from jitclient.capture.user_code.code import canonical_code
from jitclient.capture.user_code.names import MISSING, content_of
from jitclient.core.digests import digest
from jitclient.errors import CaptureError


def calls_back(jaxpr: Any) -> bool:
    """Return whether a jaxpr, or one inside its equations, has a callback, which may raise any exception."""
    return next(_callbacks(jaxpr), None) is not None


def looks_at_shardings(jaxpr: Any) -> bool:
    """Return whether compiling a jaxpr calls a function of the user's (`jax.debug.inspect_array_sharding`)."""
    return any(equation.primitive.name == "inspect_sharding" for equation in equations(jaxpr))


def functions_of(traced: Any, lowered: Any) -> tuple[Callable[..., tuple[Any, ...]], ...]:
    """Return the callbacks of a lowered program, in the order of their positions.

    Raises:
        CaptureError: The program has callbacks, and this version of JAX keeps them elsewhere.
    """
    try:
        return tuple(compile_arguments(lowered)["host_callbacks"])
    except (AttributeError, KeyError) as error:
        if traced.jaxpr.effects or calls_back(traced.jaxpr):
            raise CaptureError("this version of JAX does not expose the callbacks of a lowered program") from error
        return ()


def compile_arguments(lowered: Any) -> dict[str, Any]:
    """Return the arguments with which JAX compiles a lowered program."""
    found: dict[str, Any] = lowered._lowering.compile_args
    return found


def callback_names(jaxpr: Any, ref: values.Ref) -> tuple[str, ...]:
    """Return texts that identify the callbacks of a jaxpr, in order, equally in all processes.

    The text of a lowered program does not include its callbacks.
    """
    return tuple(_identity(equation, ref) for equation in _callbacks(jaxpr))


def callbacks_for_people(jaxpr: Any) -> str:
    """Return a readable list of the callbacks of a jaxpr, for messages."""
    found = [f"{equation.primitive.name} of {_name_of(_function_of(equation))}" for equation in _callbacks(jaxpr)]
    return ", ".join(dict.fromkeys(found))


def _callbacks(jaxpr: Any) -> Iterator[Any]:
    for equation in equations(jaxpr):
        if "callback" in equation.primitive.name or equation.primitive.name in ("debug_print", "inspect_sharding"):
            yield equation


def equations(jaxpr: Any, seen: set[int] | None = None) -> Iterator[Any]:
    """Yield the equations of a jaxpr and of the jaxprs nested in it, each jaxpr once.

    Args:
        jaxpr: The jaxpr to search.
        seen: Ids of the jaxprs already visited, which are skipped; the visited ones are added.
    """
    import jax

    seen = set() if seen is None else seen
    if id(jaxpr) in seen:
        return
    seen.add(id(jaxpr))
    for equation in jaxpr.eqns:
        yield equation
        for held in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_jaxpr):
            if _is_jaxpr(held):
                yield from equations(held, seen)


def _is_jaxpr(value: Any) -> bool:
    return hasattr(value, "eqns")


def _identity(equation: Any, ref: values.Ref) -> str:
    if equation.primitive.name == "debug_print":
        return f"debug_print {sorted((name, repr(value)) for name, value in equation.params.items())}"
    return name_of_function(_function_of(equation), ref)


def name_of_function(fun: Any, ref: values.Ref) -> str:
    """Return a name that is equal in all processes for equal functions, as far as their code and values are known."""
    while isinstance(fun, functools.partial) and ref(fun) is None:
        fun = fun.func
    index = ref(fun)
    if index is not None:
        return f"captured {index}"
    code = getattr(fun, "__code__", None)
    if code is not None:
        held = [_name_of_content(cell, ref) for cell in fun.__closure__ or ()]
        return f"code {digest(canonical_code(code).blob, 8).hex()} {' '.join(held)}".rstrip()
    return f"{getattr(fun, '__module__', None)}.{_name_of(fun)}"


def _name_of_content(cell: CellType, ref: values.Ref) -> str:
    """Return a name for the content of a closure cell; content of an unknown kind is named by its type alone."""
    value = content_of(cell)
    index = None if value is MISSING else ref(value)
    if index is not None:
        return f"captured {index}"
    if is_plain(value):
        return digest(to_bytes(value), 8).hex()
    return name_of_function(value, ref) if isinstance(value, FunctionType) else type(value).__qualname__


def _function_of(equation: Any) -> Any:
    """Return the user's function, unwrapped from JAX's flattening wrapper, or the format string of `debug_print`."""
    found = equation.params.get("callback", equation.params.get("fmt"))
    if getattr(found, "__module__", "") == "jax._src.debugging":
        held = dict(zip(found.__code__.co_freevars, found.__closure__ or (), strict=True))
        return held["callback"].cell_contents if "callback" in held else found
    return getattr(found, "callback_func", found)


def _name_of(fun: Any) -> str:
    return repr(fun) if isinstance(fun, str) else getattr(fun, "__qualname__", type(fun).__qualname__)
