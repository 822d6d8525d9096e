"""Dispatch of operations on arrays: where they run, and with which arguments.

An operation runs on the daemon, as a program of its own. If it is part of a trace, or an argument cannot be part of a
program, it runs in this process on the array's value. The constants in a program's arguments are marked.
"""

import contextlib
import functools
import importlib.util
import operator
import sys
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jitclient.calls.remote_function import RemoteFunction
from jitclient.core.notices import warn
from jitclient.core.settings import settings
from jitclient.core.tracebacks import api_boundary
from jitclient.errors import JitserverError
from jitclient.jaxside import context, interop, own_jax, static_leaves, trace_state
from jitclient.jaxside.options import JitOptions
from jitclient.jaxside.static_leaves import StaticLeaf

if TYPE_CHECKING:
    from jax import Array as _JaxArray
else:
    _JaxArray = object


class Remote(_JaxArray):
    """Base class of arrays on the daemon."""

    __slots__ = ()

    def in_process(self) -> Any:
        """Return the value as an array of this process."""
        raise NotImplementedError


def is_array(value: Any) -> bool:
    """Return whether a value is an array of numpy, jax or the daemon."""
    return isinstance(value, (Remote, np.ndarray, np.generic)) or interop.is_jax_array(value)


def is_integer(value: Any) -> bool:
    """Return whether a value is an integer, or an integer array without axes."""
    if is_array(value):
        return value.shape == () and np.issubdtype(value.dtype, np.integer)
    return isinstance(value, int)


def is_for_here(*values: Any) -> bool:
    """Return whether the operation is part of a trace in this process, or jit is disabled."""
    return trace_state.is_active() or context.jit_is_disabled() or any(map(interop.is_tracer, values))


def here(value: Any) -> Any:
    """Return a value for an operation in this process. Imports jax if it is installed, for its behaviour and errors."""
    if isinstance(value, Remote):
        with contextlib.suppress(ImportError):
            importlib.import_module("jax")
        return value.in_process()
    return tuple(map(here, value)) if type(value) is tuple else value


def on_daemon(
    function: Callable[..., Any],
    name: str,
    what: Hashable,
    *args: Any,
    in_process: Callable[[], Any],
    variant: Hashable = None,
) -> Any:
    """Call a function on the daemon; each value of the constants in its arguments has a program of its own.

    Args:
        function: the operation, a function of this package.
        name: the name of the operation in messages.
        what: a constant that is the first argument; None for no such argument.
        args: the other arguments.
        in_process: runs the operation in this process. It is called if the call fails: JAX then reports mistakes of
            the user in its own words, and a mistake of jitserver does no harm.
        variant: if a function has very many constants, each variant has its own jitted function: JAX's hash of a tree
            leaves out its constants.
    """
    try:
        if "jax" in sys.modules:
            static_leaves.register()
        constants = () if what is None else (exact(what),)
        return _jitted(function, name, variant)(*constants, *args)
    except JitserverError:
        raise
    except Exception as error:
        if settings().fallback == "error" or importlib.util.find_spec("jax") is None:
            raise
        failed = f"{type(error).__name__}: {error}"
    result = in_process()  # raises if it is the user's mistake
    warn(f"{name} runs in this process: jitserver failed ({failed:.200}). Please report this")
    return result


@functools.cache
def _jitted(function: Callable[..., Any], name: str, variant: Hashable) -> Any:
    own_jax.configure()
    jitted = RemoteFunction(function, JitOptions.of(function, {}), has_static_leaves=True)
    jitted.__name__ = name
    return jitted


def add_method(cls: type, name: str, call: Callable[..., Any], kind: Callable[[Any], Any] | None = None) -> None:
    """Add a method to a class, or an attribute of another kind, that calls `call(name, self, args, kwargs)`."""

    @api_boundary
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return call(name, self, args, kwargs)

    method.__name__, method.__qualname__, method.__module__ = name, f"{cls.__name__}.{name}", cls.__module__
    method.__doc__ = f"JAX's `{name}`, on the daemon."
    setattr(cls, name, method if kind is None else kind(method))


# ---- arguments of programs


class MadeInTrace(NamedTuple):
    """Description of a value that a maker makes of its arguments in the trace."""

    maker: Any  # a name, as a constant
    args: tuple[Any, ...]


def _window(start: Any, size: int) -> Any:
    """Return an index that selects `start : start + size`, where `size` is static and `start` may be traced."""
    import jax

    return jax.ds(start, size)


_MAKERS: dict[str, Callable[..., Any]] = {
    "complex": complex,
    "dtype": np.dtype,
    "float": float.fromhex,
    "slice": slice,
    "window": _window,
}


def argument(value: Any) -> Any:
    """Return an argument whose arrays are inputs of the program and whose other parts are constants.

    Raises:
        TypeError: a constant is not hashable.
    """
    if is_array(value):
        return value
    return type(value)(map(argument, value)) if type(value) in (tuple, list) else exact(value)


def constant(value: Any) -> Any:
    """Return a constant argument; as in JAX, an integer array without axes is an integer.

    Raises:
        TypeError: the constant is not hashable.
    """
    if type(value) in (tuple, list):
        return type(value)(map(constant, value))
    return exact(operator.index(value) if is_array(value) and is_integer(value) else value)


def exact(value: Any) -> Any:
    """Return a constant that equals only identical values: 1, True and 1.0 differ, and so do 0.0 and -0.0.

    Raises:
        TypeError: the constant is not hashable.
    """
    match value:
        case None:
            return None
        case np.dtype():
            return made("dtype", exact(value.name))
        case slice():
            return made("slice", *map(exact, (value.start, value.stop, value.step)))
        case float() if type(value) is float:
            return made("float", exact(value.hex()))
        case complex() if type(value) is complex:
            return made("complex", exact(value.real), exact(value.imag))
    hash(value)
    return StaticLeaf(value)


def made(maker: str, *args: Any) -> MadeInTrace:
    """Return the description of a value that the maker `maker` makes of arguments."""
    return MadeInTrace(StaticLeaf(maker), args)


def read(value: Any) -> Any:
    """Return the value of an argument in the trace, with constants turned back into values."""
    if type(value) is MadeInTrace:
        return _MAKERS[value.maker](*map(read, value.args))
    return type(value)(map(read, value)) if type(value) in (tuple, list) else value
