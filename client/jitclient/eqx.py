"""Counterpart of Equinox's `filter_jit` that runs functions on the daemon."""

import contextlib
import functools
import inspect
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, overload

import equinox
import jax

from jitclient.calls.decorator import jit
from jitclient.calls.remote_function import P, R
from jitclient.core.tracebacks import api_boundary
from jitclient.jaxside import static_leaves
from jitclient.jaxside.internals import CALLBACK_LOGGER

_DONATED = {
    "all": (0, 1, 2, 3),
    "all-except-first": (0, 2, 3),
    "warn": (0, 1, 2, 3),
    "warn-except-first": (0, 2, 3),
    "none": (),
}
"""Positions of the donated parameters of the function that `_body` makes, for each value of `donate`."""

# The text after this mark in Equinox's message says that the caller is not `filter_jit`.
_END_OF_MESSAGE = "\n\n\n----"

_callback_log = logging.getLogger(CALLBACK_LOGGER)


class _NoFailedCallbacks(logging.Filter):
    """Filter for JAX's record of a callback that raised, which `equinox.filter_jit` leaves out as well."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.getMessage() != "jax.pure_callback failed"


@overload
def filter_jit(
    fun: Callable[P, R], *, donate: str = ..., deps: Iterable[Any] | None = ...
) -> "_FilterJitted[P, R]": ...
@overload
def filter_jit(
    *, donate: str = ..., deps: Iterable[Any] | None = ...
) -> Callable[[Callable[P, R]], "_FilterJitted[P, R]"]: ...
@api_boundary
def filter_jit(fun: Any = None, *, donate: str = "none", deps: Iterable[Any] | None = None) -> Any:
    """Return a function that runs on the daemon: arrays in its arguments are inputs, all other values are static.

    Like `equinox.filter_jit`, works as a bare decorator, as a decorator with keywords, and as a call. Arrays inside
    modules are inputs, too.

    Args:
        fun: a function of trees, or a callable module. Results may hold any object; a result that is not an array is
            the object from the trace.
        donate: "all", "all-except-first" (all but the first argument), "warn", "warn-except-first" or "none". With
            "warn", JAX warns about donated arrays whose memory no result could use.
        deps: as for `jitclient.jit`.

    Returns:
        A function with the parameters of `fun`, which is its `__wrapped__`.

    Raises:
        ValueError: `donate` has an invalid value; in a call, a static part of the arguments cannot be hashed.
        equinox.EquinoxRuntimeError: in a call, the condition of an `equinox.error_if` is true.

    Example:
        >>> @jitclient.eqx.filter_jit(donate="all")
        ... def step(model, state, x): ...
    """
    if donate not in _DONATED:
        raise ValueError(f"filter_jit: donate must be one of {', '.join(map(repr, _DONATED))}; got {donate!r}")
    if fun is None:
        return functools.partial(filter_jit, donate=donate, deps=deps)
    kind = _FilterJitted if jax.tree_util.all_leaves([fun]) else _FilterJittedModule
    return kind(fun, donate, None if deps is None else tuple(deps))


class _FilterJitted(Generic[P, R]):
    """Function whose calls run on the daemon, made by `filter_jit`."""

    __wrapped__: Callable[P, R]

    def __init__(self, fun: Callable[P, R], donate: str, deps: tuple[Any, ...] | None) -> None:
        functools.update_wrapper(self, fun, updated=())
        self._donate = donate
        self._deps = deps
        self._jitted = self._make()

    def _make(self) -> Any:
        return _jitted(self.__wrapped__, getattr(self.__wrapped__, "__name__", "function"), self._donate, self._deps)

    @api_boundary
    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        given = self._given(args, kwargs)
        silent = _NoFailedCallbacks()
        _callback_log.addFilter(silent)
        try:
            with _quiet() if self._donate.startswith("all") else contextlib.nullcontext():
                return self._jitted(*given)  # type: ignore[no-any-return]
        except jax.errors.JaxRuntimeError as error:
            _, found, message = str(error).rpartition("_EquinoxRuntimeError: ")
            if found:
                raise equinox.EquinoxRuntimeError(message.partition(_END_OF_MESSAGE)[0]) from None
            raise
        finally:
            _callback_log.removeFilter(silent)

    @api_boundary
    def lower(self, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Trace and lower the function for arguments like these, without running it; return the stage to compile."""
        return _EqxStage(self._jitted.lower(*self._given(args, kwargs)), self._marked)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else equinox.Partial(self, instance)

    def __repr__(self) -> str:
        return f"filter_jit({self.__wrapped__!r})"

    def __reduce__(self) -> Any:
        return functools.partial(filter_jit, donate=self._donate, deps=self._deps), (self.__wrapped__,)

    @functools.cached_property
    def _signature(self) -> inspect.Signature:
        return inspect.signature(self.__wrapped__)

    def _module(self) -> Any:
        return None

    def _given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        bound = self._signature.bind(*args, **kwargs)
        return self._module(), bound.args[:1], bound.args[1:], bound.kwargs

    def on_daemon(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the function, arguments and keywords that a call has on the daemon, for `explain`."""
        return self._jitted, self._given(args, kwargs), {}

    def _marked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        marked, _ = self._jitted.general_path().in_process.marked(self._given(args, kwargs), {})
        return marked  # type: ignore[no-any-return]


@jax.tree_util.register_pytree_node_class
class _FilterJittedModule(_FilterJitted[P, R]):
    """Module whose calls run on the daemon. JAX can differentiate, map and update its arrays as usual."""

    def _make(self) -> Any:
        return _jitted_module(type(self.__wrapped__).__name__, self._donate, self._deps)

    def tree_flatten(self) -> Any:
        return (self.__wrapped__,), (self._donate, self._deps)

    @classmethod
    def tree_unflatten(cls, options: Any, children: Any) -> Any:
        # Without `__init__` and checks: JAX also unflattens placeholders, which are not modules.
        made = object.__new__(cls)
        [made.__wrapped__] = children
        made._donate, made._deps = options
        return made

    @functools.cached_property
    # Set on first use, because `tree_unflatten` does not run `__init__`.
    def _jitted(self) -> Any:
        return self._make()

    def _module(self) -> Any:
        return self.__wrapped__


class _EqxStage:
    """Stage of JAX's compilation (lowered or compiled) that takes the arguments of the user's function."""

    def __init__(self, stage: Any, given: Callable[..., Any]) -> None:
        self._stage = stage
        self._given = given

    def compile(self, compiler_options: dict[str, str | bool] | None = None) -> "_EqxStage":
        return _EqxStage(self._stage.compile(compiler_options), self._given)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._stage(*self._given(args, kwargs))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stage, name)


def _jitted(fun: Any, name: str, donate: str, deps: tuple[Any, ...] | None) -> Any:
    return jit(_body(fun, name), auto_static=True, donate_argnums=_DONATED[donate], deps=deps)


_jitted_module = functools.cache(functools.partial(_jitted, None))
"""Jitted function of all modules of one class, shared because each update of a module makes a new object."""


def _body(fun: Any, name: str) -> Callable[..., Any]:
    """Return the function to jit: it calls `fun`, or if that is None, the module in its first argument."""

    def body(module: Any, first: Any, rest: Any, keywords: Any) -> Any:
        return jax.tree.map(_as_result, (module if fun is None else fun)(*first, *rest, **keywords))

    body.__name__ = body.__qualname__ = name
    return body


def _as_result(leaf: Any) -> Any:
    static_leaves.register()
    return leaf if equinox.is_array(leaf) else static_leaves.StaticLeaf(leaf)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Some donated buffers were not usable")
        yield
