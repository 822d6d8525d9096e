"""Decorator `jit`, and the key of a jitted function."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from jitclient.calls import early_start
from jitclient.calls.deps import Deps
from jitclient.calls.remote_function import AutoStaticFunction, P, R, RemoteFunction
from jitclient.core import first_use
from jitclient.core.tracebacks import api_boundary
from jitclient.jaxside import own_jax
from jitclient.jaxside.options import JitOptions
from jitclient.profiles import observer
from jitclient.session import process

if TYPE_CHECKING:
    import jax


@overload
def jit(
    fun: Callable[P, R],
    /,
    *,
    deps: Iterable[Any] | None = ...,
    auto_static: bool = ...,
    static_argnums: int | Sequence[int] | None = ...,
    static_argnames: str | Iterable[str] | None = ...,
    donate_argnums: int | Sequence[int] | None = ...,
    donate_argnames: str | Iterable[str] | None = ...,
    in_shardings: Any = ...,
    out_shardings: Any = ...,
    keep_unused: bool = ...,
    inline: bool = ...,
    device: "jax.Device | None" = ...,
    backend: str | None = ...,
    compiler_options: Mapping[str, Any] | None = ...,
) -> RemoteFunction[P, R]: ...
@overload
def jit(
    *,
    deps: Iterable[Any] | None = ...,
    auto_static: bool = ...,
    static_argnums: int | Sequence[int] | None = ...,
    static_argnames: str | Iterable[str] | None = ...,
    donate_argnums: int | Sequence[int] | None = ...,
    donate_argnames: str | Iterable[str] | None = ...,
    in_shardings: Any = ...,
    out_shardings: Any = ...,
    keep_unused: bool = ...,
    inline: bool = ...,
    device: "jax.Device | None" = ...,
    backend: str | None = ...,
    compiler_options: Mapping[str, Any] | None = ...,
) -> Callable[[Callable[P, R]], RemoteFunction[P, R]]: ...
@api_boundary
def jit(
    fun: Callable[..., Any] | None = None,
    /,
    *,
    deps: Iterable[Any] | None = None,
    auto_static: bool = False,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    keep_unused: bool = False,
    inline: bool = False,
    device: "jax.Device | None" = None,
    backend: str | None = None,
    compiler_options: Mapping[str, Any] | None = None,
) -> Any:
    """Return a function that runs on the daemon, where it is compiled once for all processes.

    Works as a bare decorator (`@jit`), with keywords (`@jit(static_argnums=1)`) and as a call (`jit(f, ...)`).

    Args:
        fun: as for `jax.jit`, a function of trees of arrays, without side effects.
        deps: inputs that `fun` reads during its trace apart from its arguments and captured objects: paths of files
            (`pathlib.Path`), names of environment variables (strings), other values. A function that reads undeclared
            inputs of these kinds is traced once in every process.
        auto_static: whether everything in the arguments that is not an array, at any depth, is static: numbers,
            strings, functions. There is one program for each structure and each set of static values.
        static_argnums: positions of the arguments that are part of the program and not its inputs. They must be
            hashable. If only positions or only names are given, the others follow from the signature of `fun`.
        static_argnames: names of such arguments.
        donate_argnums: positions of the arguments whose memory the results may reuse, after which they are deleted.
        donate_argnames: names of such arguments.
        in_shardings: the shardings of the positional arguments on the daemon's devices: a tree prefix of them, whose
            leaves are `jax.sharding.Sharding` or None (unchanged).
        out_shardings: the same for the results.
        keep_unused: whether the program also accepts arguments that it does not use.
        inline: whether the function becomes part of the jaxpr of a traced function that calls it.
        device: the device to run on. Experimental in JAX; `in_shardings` is more general.
        backend: the platform to run on. Experimental in JAX.
        compiler_options: options of XLA, by name.

    Returns:
        A function with the parameters of `fun`, whose results are trees of `jitclient.Array`. `__wrapped__` is `fun`.

    Raises:
        TypeError, ValueError: the keywords do not match the function.

    Example:
        >>> @jitclient.jit
        ... def step(params, x):
        ...     return params["w"] @ x
    """
    options = {
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
        "donate_argnums": donate_argnums,
        "donate_argnames": donate_argnames,
        "in_shardings": in_shardings,
        "out_shardings": out_shardings,
        "keep_unused": keep_unused,
        "inline": inline,
        "device": device,
        "backend": backend,
        "compiler_options": compiler_options,
    }
    if fun is None:
        return functools.partial(_jitted, deps=deps, auto_static=auto_static, options=options)
    return _jitted(fun, deps, auto_static, options)


@api_boundary
def _jitted(
    fun: Callable[P, R], deps: Iterable[Any] | None, auto_static: bool, options: dict[str, Any]
) -> RemoteFunction[P, R]:
    if not callable(fun):
        raise TypeError(f"Expected a callable value, got {fun!r}")
    if not process.inside_daemon:
        first_use.note()
        own_jax.configure()
        early_start.start_with_jax()
        observer.observe()
    given = JitOptions.of(fun, options)
    given.check_devices(fun)
    declared = Deps.of(deps)
    if auto_static:
        return AutoStaticFunction(fun, given, declared, has_static_leaves=True)
    return RemoteFunction(fun, given, declared)


@api_boundary
def function_key(fun: Callable[..., Any]) -> str:
    """Return the digest of the function's capture: equal for equal code and captured values, in any process.

    Raises:
        CaptureError: the function cannot be captured; the message gives the reason.

    Example:
        >>> jitclient.function_key(step)
        '5b1c0de3a4f7…'
    """
    if isinstance(fun, RemoteFunction):
        return fun.general_path().function_key()
    from jitclient.capture.dump import capture

    return capture(fun).key
