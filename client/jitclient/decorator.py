"""`jit`, and the key of what it jits."""

import functools
from collections.abc import Callable, Iterable
from typing import Any

from jitclient.calls.deps import Deps
from jitclient.calls.options import JitOptions
from jitclient.calls.remote_function import RemoteFunction
from jitclient.local_jax import client_device
from jitclient.sessions import process


def jit(
    fun: Callable[..., Any] | None = None,
    /,
    *,
    deps: Iterable[Any] | None = None,
    auto_static: bool = False,
    **options: Any,
) -> Any:
    """Runs a function on the daemon, compiled there once for all processes that call it alike.

    Works bare (`@jit`), with keywords (`@jit(static_argnums=1)`) and as a call (`jit(f, ...)`).

    Args:
        fun: what `jax.jit` takes: a function of trees of arrays, without side effects.
        deps: what `fun` reads while it is traced besides its arguments and Python's objects: paths of files
            (`pathlib.Path`), names of variables of the environment (strings), other values. Without it, a function that
            reads such things is traced once in every process.
        auto_static: whether all that is no array in the arguments, however deep in their trees, is static: numbers,
            strings, functions. There is one program for each structure, and each set of static values.
        **options: the keywords of `jax.jit`, with the same meaning.

    Returns:
        A function whose results are trees of `jitclient.Array`. `__wrapped__` is `fun`.

    Raises:
        TypeError, ValueError: the keywords do not fit the function.

    Example:
        >>> @jitclient.jit
        ... def step(params, x):
        ...     return params["w"] @ x
    """
    if fun is None:
        return functools.partial(jit, deps=deps, auto_static=auto_static, **options)
    if not callable(fun):
        raise TypeError(f"Expected a callable value, got {fun!r}")
    if not process.inside_daemon:
        client_device.pin()
    given = JitOptions.of(fun, options)
    given.check_devices(fun)
    declared = Deps.of(deps)
    if auto_static:
        from jitclient.calls.auto_static import AutoStaticFunction

        return AutoStaticFunction(fun, given, declared)
    return RemoteFunction(fun, given, declared)


def function_key(fun: Callable[..., Any]) -> str:
    """The digest of the function's capture: equal for equal code and captured values, wherever and however it runs.

    Raises:
        CaptureError: the function cannot be captured; the message says why.

    Example:
        >>> jitclient.function_key(step)
        '5b1c0de3a4f7…'
    """
    if isinstance(fun, RemoteFunction):
        return fun.general_path().function_key()
    from jitclient.codec.capture import capture

    return capture(fun).key
