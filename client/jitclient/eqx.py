"""Equinox's `filter_jit` on the daemon."""

import contextlib
import functools
import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, overload

import equinox
import jax

from jitclient.calls.decorator import jit
from jitclient.calls.remote_function import P, R
from jitclient.jaxside import static_leaves

_DONATED = {
    "all": (0, 1, 2, 3),
    "all-except-first": (0, 2, 3),
    "warn": (0, 1, 2, 3),
    "warn-except-first": (0, 2, 3),
    "none": (),
}
"""For each way to donate, the arguments that are, of a function's body: see `_body`."""

_END_OF_MESSAGE = "\n\n\n----"  # what follows says that this is not `filter_jit`


@overload
def filter_jit(
    fun: Callable[P, R], *, donate: str = ..., deps: Iterable[Any] | None = ...
) -> "_FilterJitted[P, R]": ...
@overload
def filter_jit(
    *, donate: str = ..., deps: Iterable[Any] | None = ...
) -> Callable[[Callable[P, R]], "_FilterJitted[P, R]"]: ...
def filter_jit(fun: Any = None, *, donate: str = "none", deps: Iterable[Any] | None = None) -> Any:
    """Runs a function on the daemon; arrays in its arguments, in modules too, are inputs, and all else is static.

    Works bare, with keywords, and as a call, as `equinox.filter_jit` does, whose counterpart it is.

    Args:
        fun: a function of trees, or a module that can be called. Results may hold anything; what is no array in them
            is what it was in the trace.
        donate: "all", "all-except-first" (the first argument), "warn", "warn-except-first" or "none". With "warn", JAX
            warns of arrays whose memory no result could take.
        deps: as for `jitclient.jit`.

    Returns:
        A function with the parameters of `fun`, which is its `__wrapped__`.

    Raises:
        ValueError: there is no such way to donate; in a call, a static part of the arguments cannot be hashed.
        equinox.EquinoxRuntimeError: in a call, the condition of an `equinox.error_if` held.

    Example:
        >>> @jitclient.eqx.filter_jit(donate="all")
        ... def step(model, state, x): ...
    """
    if donate not in _DONATED:
        raise ValueError(f"filter_jit(..., donate={donate!r}): it must be one of {', '.join(map(repr, _DONATED))}")
    if fun is None:
        return functools.partial(filter_jit, donate=donate, deps=deps)
    kind = _FilterJitted if jax.tree_util.all_leaves([fun]) else _FilterJittedModule
    return kind(fun, donate, None if deps is None else tuple(deps))


class _FilterJitted(Generic[P, R]):
    """A function whose calls run on the daemon. Made by `filter_jit`."""

    __wrapped__: Callable[P, R]

    def __init__(self, fun: Callable[P, R], donate: str, deps: tuple[Any, ...] | None) -> None:
        functools.update_wrapper(self, fun, updated=())
        self._donate = donate
        self._deps = deps
        self._jitted = self._make()

    def _make(self) -> Any:
        return _jitted(self.__wrapped__, getattr(self.__wrapped__, "__name__", "function"), self._donate, self._deps)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        given = self._given(args, kwargs)
        try:
            with _quiet() if self._donate.startswith("all") else contextlib.nullcontext():
                return self._jitted(*given)  # type: ignore[no-any-return]
        except jax.errors.JaxRuntimeError as error:
            _, found, told = str(error).rpartition("_EquinoxRuntimeError: ")
            if found:
                raise equinox.EquinoxRuntimeError(told.partition(_END_OF_MESSAGE)[0]) from None
            raise

    def lower(self, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        """The function for arguments of this kind, ready to be compiled; nothing runs."""
        return _Stage(self._jitted.lower(*self._given(args, kwargs)), self._marked)

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
        """What a call is on the daemon, for `explain`: a function, its arguments and its keywords."""
        return self._jitted, self._given(args, kwargs), {}

    def _marked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        marked, _ = self._jitted.general_path().marked(self._given(args, kwargs), {})
        return marked  # type: ignore[no-any-return]


@jax.tree_util.register_pytree_node_class
class _FilterJittedModule(_FilterJitted[P, R]):
    """A module whose calls run on the daemon, and whose arrays can be differentiated, mapped and updated as ever."""

    def _make(self) -> Any:
        return _jitted_module(type(self.__wrapped__).__name__, self._donate, self._deps)

    def tree_flatten(self) -> Any:
        return (self.__wrapped__,), (self._donate, self._deps)

    @classmethod
    def tree_unflatten(cls, options: Any, children: Any) -> Any:
        made = object.__new__(cls)  # of anything: JAX also puts what is no module there
        [made.__wrapped__] = children
        made._donate, made._deps = options
        return made

    @functools.cached_property
    def _jitted(self) -> Any:  # of one that was made of a tree
        return self._make()

    def _module(self) -> Any:
        return self.__wrapped__


class _Stage:
    """A stage of JAX's, but compiled and called with the arguments of the function itself."""

    def __init__(self, stage: Any, given: Callable[..., Any]) -> None:
        self._stage = stage
        self._given = given

    def compile(self, compiler_options: dict[str, str | bool] | None = None) -> "_Stage":
        return _Stage(self._stage.compile(compiler_options), self._given)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._stage(*self._given(args, kwargs))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stage, name)


def _jitted(fun: Any, name: str, donate: str, deps: tuple[Any, ...] | None) -> Any:
    return jit(_body(fun, name), auto_static=True, donate_argnums=_DONATED[donate], deps=deps)


_jitted_module = functools.cache(functools.partial(_jitted, None))
"""For all modules of a class: each update of one gives another object."""


def _body(fun: Any, name: str) -> Callable[..., Any]:
    """What is jitted: a call of a function, or where that is None, of the module that is an argument."""

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
