"""Where an operation on an array runs: on the daemon, as a program of its own, or in this process on its value.

It runs in this process if it is part of a trace, or if an argument cannot be part of a program.
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
    """Whether the operation is part of a trace in this process, or jit is disabled."""
    return trace_state.is_under_way() or context.jit_is_disabled() or any(map(interop.is_tracer, values))


def here(value: Any) -> Any:
    """A value for an operation in this process. Imports jax if it is installed, for its behaviour and errors."""
    if isinstance(value, Remote):
        with contextlib.suppress(ImportError):
            importlib.import_module("jax")
        return value.in_process()
    return tuple(map(here, value)) if type(value) is tuple else value


def on_daemon(function: Callable[..., Any], name: str, constants: tuple[Hashable, ...], *operands: Any) -> Any:
    """Call a function on the daemon; each value of the constants, its first arguments, has a program of its own."""
    return _jitted(function, name, len(constants))(*constants, *operands)


def run(
    function: Callable[..., Any],
    name: str,
    constants: tuple[Hashable, ...],
    operands: Operands,
    otherwise: Callable[[], Any],
) -> Any:
    """As `on_daemon`, for any constants: call `otherwise` if they are not hashable."""
    try:
        hash(constants)
    except TypeError:
        return otherwise()  # most often a mistake, which JAX reports
    return on_daemon(function, name, constants, *operands)


def add_method(cls: type, name: str, call: Callable[..., Any], kind: Callable[[Any], Any] | None = None) -> None:
    """Add a method to a class, or an attribute of another kind, for `call(name, self, args, kwargs)`."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return call(name, self, args, kwargs)

    method.__name__, method.__qualname__, method.__module__ = name, f"{cls.__name__}.{name}", cls.__module__
    method.__doc__ = f"JAX's `{name}`, on the daemon."
    setattr(cls, name, method if kind is None else kind(method))


@functools.cache
def _jitted(function: Callable[..., Any], name: str, constants: int) -> Any:
    client_device.pin()
    jitted = RemoteFunction(function, JitOptions.of(function, {"static_argnums": tuple(range(constants))}))
    jitted.__name__ = name
    return jitted
