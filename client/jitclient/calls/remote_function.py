"""Function whose calls run on the daemon, as its user sees it. The first call loads the code that calls need."""

import functools
import inspect
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from jitclient.calls import MISS
from jitclient.calls.deps import Deps
from jitclient.capture.describe.jitted import program_attributes, rebuild_jit
from jitclient.core.tracebacks import add_hint, api_boundary, hide_machinery, is_of_loading
from jitclient.errors import DaemonLost, DaemonUnavailable, JitserverError, loading
from jitclient.jaxside.options import JitOptions
from jitclient.session import process

if TYPE_CHECKING:
    from jitclient.calls.general_path import GeneralPath
    from jitclient.calls.stages import Lowered, Traced

P = ParamSpec("P")
R = TypeVar("R")
_Rest = ParamSpec("_Rest")
_Instance = TypeVar("_Instance")


class RemoteFunction(Generic[P, R]):
    """Function whose calls run on the daemon, made by `jit`."""

    __slots__ = ("__dict__", "__weakref__", "_deps", "_fun", "_has_static_leaves", "_options", "_path")
    # No state in `__dict__`, because `functools.wraps` copies `__dict__` from one function to another.

    counts_as_jitted = True  # for `jax.eval_shape`; see `internals.forward_eval_shape`
    __name__: str
    __wrapped__: Callable[P, R]

    def __init__(
        self, fun: Callable[P, R], options: JitOptions, deps: Deps | None = None, has_static_leaves: bool = False
    ) -> None:
        _describe_as(self, fun)
        self._fun = fun
        self._options = options
        self._deps = deps
        self._has_static_leaves = has_static_leaves
        self._path: GeneralPath | None = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function as `jax.jit` would.

        Raises:
            TypeError: an argument is not a tree of arrays; the message names its path.
            CaptureError, DaemonError: the call cannot run on the daemon, and JITSERVER_FALLBACK=error.
            ArrayLost: an argument was lost with its daemon.
            BaseException: the function raised it.
        """
        path, lost = self._path, None
        if path is None:
            path = self.general_path()
        try:
            for plan in path.plans:
                try:
                    result: R = plan(args, kwargs)
                except DaemonLost as error:
                    lost = error
                    break
                except Exception as error:
                    if isinstance(error, (JitserverError, path.failed)):
                        raise
                    # Either jitserver failed or the user made a mistake: the general path finds out which.
                    path.plans = ()
                    break
                if result is not MISS:
                    return result
            made: R = path.call(args, kwargs, lost)
            return made
        except path.failed as failed:
            raised: BaseException = failed.error
        except BaseException as error:
            if is_of_loading(error):
                raise DaemonUnavailable(f"jitclient cannot load its code: {error}") from error
            add_hint(error)
            hide_machinery(error)
            raise
        finally:
            # Break the cycle of the error, its traceback and this frame, which holds the arguments.
            lost = None
        raised = path.explained(raised, args, kwargs)
        add_hint(raised)
        try:
            raise raised
        except BaseException:
            hide_machinery(raised)
            raise
        finally:
            del raised

    def general_path(self) -> "GeneralPath":
        """Return the general path, created on first use."""
        if self._path is None:
            with loading():
                from jitclient.calls.general_path import GeneralPath

            self._path = GeneralPath(self._fun, self.__name__, self._options, self._deps, self._has_static_leaves)
        return self._path

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(
        self: Callable[Concatenate[_Instance, _Rest], R], instance: _Instance, owner: type | None = None
    ) -> Callable[_Rest, R]: ...
    @overload  # as type checkers see a staticmethod
    def __get__(self, instance: object, owner: type | None = None) -> Self: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        try:
            return f"<PjitFunction of {self.__wrapped__!r}>"
        except Exception:
            # JAX prints this text in the same case.
            return "<PjitFunction>"

    def __reduce__(self) -> Any:
        made_of = self._fun, self._options.given(), *([self._deps.declared] if self._deps is not None else ())
        return rebuild, made_of, program_attributes(self, self._fun) or None

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._fun)

    def __copy__(self) -> Self:
        return self  # as functions are copied

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    # ---- the other methods of JAX's jitted functions

    @api_boundary
    def lower(self, *args: Any, **kwargs: Any) -> "Lowered":
        """Return the function for arguments of this signature in a form that can be compiled, without running it.

        Args:
            *args: the arguments of a call; instead of an array, any object with a shape and a dtype.
            **kwargs: the keyword arguments, likewise.

        Returns:
            A `stages.Lowered`; its `compile()` compiles the program on the daemon.

        Example:
            >>> step.lower(params, jax.ShapeDtypeStruct((64, 8), "float32")).compile()
        """
        lowered: Lowered = self.general_path().lower(args, kwargs)
        return lowered

    @api_boundary
    def trace(self, *args: Any, **kwargs: Any) -> "Traced":
        """Trace the function in this process, to inspect its jaxpr; arguments as for `lower`. Imports jax."""
        traced: Traced = self.general_path().trace(args, kwargs)
        return traced

    @api_boundary
    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Return the tree of results, each with shape and dtype, from a trace in this process. Imports jax.

        Example:
            >>> step.eval_shape(params, x)["w"].shape
            (8, 8)
        """
        return self.general_path().in_process.stage("eval_shape", args, kwargs)

    def _cache_size(self) -> int:
        """Return the number of the function's programs that this process knows; the name is JAX's."""
        return 0 if self._path is None else len(self._path.programs)

    def clear_cache(self) -> None:
        """Forget the capture, programs and plans of the function in this process; the daemon keeps its programs."""
        if self._path is not None:
            self._path.clear()


class AutoStaticFunction(RemoteFunction[P, R]):
    """Function of `jit(auto_static=True)`: leaves of its arguments that are not arrays are static."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = self.general_path().in_process.marked(args, kwargs)
        return super().__call__(*args, **kwargs)

    def __reduce__(self) -> Any:
        return rebuild_auto_static, *super().__reduce__()[1:]


def rebuild(fun: Callable[..., Any], options: Mapping[str, Any], deps: tuple[Any, ...] | None = None) -> Any:
    """Rebuild a function from a pickle, or inside a daemon, its counterpart there from a capture."""
    if process.inside_daemon:
        return rebuild_jit(fun, options)
    return RemoteFunction(fun, JitOptions(**options), Deps.of(deps))


def rebuild_auto_static(
    fun: Callable[..., Any], options: Mapping[str, Any], deps: tuple[Any, ...] | None = None
) -> AutoStaticFunction[..., Any]:
    """Rebuild a function with static leaves from a capture or a pickle."""
    return AutoStaticFunction(fun, JitOptions(**options), Deps.of(deps), has_static_leaves=True)


def _describe_as(wrapper: Any, fun: Callable[..., Any]) -> None:
    """Copy name, docstring and attributes of a function to its wrapper, as JAX does.

    Attributes that the wrapper's class defines are left out: a jitted object may have fields of any name.
    """
    functools.update_wrapper(wrapper, fun, updated=())
    attributes = getattr(fun, "__dict__", {})
    known = set(dir(type(wrapper))) - {"__dict__", "__doc__", "__module__", "__annotations__"}
    vars(wrapper).update({name: value for name, value in attributes.items() if name not in known})
    named: Any = fun
    while isinstance(named, functools.partial):
        named = named.func
    wrapper.__name__ = getattr(named, "__name__", type(named).__name__)
    wrapper.__qualname__ = getattr(fun, "__qualname__", wrapper.__name__)
    wrapper.__wrapped__ = fun
