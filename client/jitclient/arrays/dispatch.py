"""Where an operation happens: on the daemon, as a program of its own, or in this process on the value.

It is this process where the operation is part of a trace, and where an argument cannot be part of a program.
"""

import contextlib
import functools
import importlib
from collections.abc import Callable, Hashable
from typing import Any

from jitclient.arrays.operands import Operands, Remote
from jitclient.calls.remote_function import RemoteFunction
from jitclient.local_jax import client_device, context, interop, trace_state
from jitclient.tracing.options import JitOptions


def is_for_here(*values: Any) -> bool:
    """Whether the operation is part of a trace in this process, or of what runs without jit."""
    return trace_state.is_under_way() or context.jit_is_disabled() or any(map(interop.is_tracer, values))


def here(value: Any) -> Any:
    """A value for an operation in this process. Brings jax in, where it is installed: it knows what is wrong."""
    if isinstance(value, Remote):
        with contextlib.suppress(ImportError):
            importlib.import_module("jax")
        return value.in_process()
    return tuple(map(here, value)) if type(value) is tuple else value


def on_daemon(function: Callable[..., Any], name: str, constants: tuple[Hashable, ...], *operands: Any) -> Any:
    """Calls a function there; a program is made for each value of the constants, which come first."""
    return _jitted(function, name, len(constants))(*constants, *operands)


def run(
    function: Callable[..., Any],
    name: str,
    constants: tuple[Hashable, ...],
    operands: Operands,
    otherwise: Callable[[], Any],
) -> Any:
    """The same, where the constants may be anything: `otherwise` is for what can be none."""
    try:
        hash(constants)
    except TypeError:
        return otherwise()  # most often a mistake: JAX knows what to say
    return on_daemon(function, name, constants, *operands)


def add_method(cls: type, name: str, made: Callable[..., Any], attribute: Any = None) -> None:
    """Gives a class a method out of a table, or the attribute that is made of it."""
    made.__name__, made.__qualname__, made.__module__ = name, f"{cls.__name__}.{name}", cls.__module__
    made.__doc__ = f"What JAX's `{name}` is, on the daemon."
    setattr(cls, name, attribute or made)


@functools.cache
def _jitted(function: Callable[..., Any], name: str, constants: int) -> Any:
    client_device.pin()
    jitted = RemoteFunction(function, JitOptions.of(function, {"static_argnums": tuple(range(constants))}))
    jitted.__name__ = name
    return jitted
