"""A function whose calls run on the daemon."""

import functools
import types
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from jitclient.arrays.array import Array
from jitclient.calls import accounts, calling
from jitclient.calls.arguments import NotAnArray, specs_of
from jitclient.calls.deps import Deps
from jitclient.calls.misses import Misses
from jitclient.calls.options import JitOptions, Static
from jitclient.calls.plan import MISS, Plan, renewed
from jitclient.calls.preparing import program_of, refuse_ambient
from jitclient.calls.program import Program
from jitclient.calls.specialisation import Specialisation
from jitclient.calls.stages import Lowered, Traced, abstract_specs
from jitclient.calls.wrapped import describe_as
from jitclient.codec.capture import Capture, capture
from jitclient.codec.reducers.jitted import own_attributes, rebuild_jit
from jitclient.errors import CaptureError, DaemonLost, DaemonUnavailable, Incompatible
from jitclient.local_jax import client_device, context, trace_state
from jitclient.local_jax.avals import abstract
from jitclient.local_jax.own_jit import own_jit
from jitclient.notices.hints import add_hint
from jitclient.notices.warned import warn
from jitclient.sessions import process
from jitclient.sessions.failures import without_machinery
from jitclient.sessions.session import Session
from jitclient.settings import settings
from jitclient.trees import tree
from jitclient.trees.naming import leaf_names
from jitclient.wire.messages import Spec

_Key = tuple[Hashable, tuple[Spec, ...], Hashable, context.Context, Hashable]


class RemoteFunction:
    """A function whose calls run on the daemon. Made by `jit`."""

    __slots__ = (
        "__dict__",
        "__weakref__",
        "_capture",
        "_deps",
        "_fun",
        "_has_statics",
        "_jitted",
        "_last",
        "_misses",
        "_options",
        "_plans",
        "_programs",
        "_warned",
    )
    # No state in `__dict__`: `functools.wraps` copies that from one function to another.

    __name__: str
    __wrapped__: Callable[..., Any]

    def __init__(self, fun: Callable[..., Any], options: JitOptions, deps: Deps | None = None) -> None:
        describe_as(self, fun)
        self._fun = fun
        self._jitted: Any = None
        self._options = options
        self._has_statics = bool(options.static_argnums or options.static_argnames)
        self._deps = deps
        self._capture: Capture | None = None
        self._programs: dict[_Key, Program] = {}
        self._last: tuple[_Key, Program] | None = None
        self._plans: tuple[Plan, ...] = ()
        self._misses = Misses()
        self._warned = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function as `jax.jit` would.

        Raises:
            TypeError: an argument is no tree of arrays; the message names its path.
            CaptureError, DaemonError: it cannot run on the daemon, and JITSERVER_FALLBACK=error.
            ArrayLost: an argument was lost with its daemon.
            BaseException: what the function raised.
        """
        lost: DaemonLost | None = None
        for plan in self._plans:
            try:
                result = plan(args, kwargs)
            except DaemonLost as error:
                lost = error
                break
            except Exception as error:
                raise _told(error)  # noqa: B904  (it is the same one)
            if result is not MISS:
                return result
        if self._steps_aside():
            return self._local(*args, **kwargs)
        statics: tuple[Static, ...] = ()
        given: tuple[Any, Any] = args, kwargs
        if self._has_statics:
            *given, statics = self._options.split(args, kwargs)  # type: ignore[assignment]
        leaves, shape = tree.flatten(tuple(given))
        try:
            result, key, program = self._remote(leaves, shape, statics, lost)
            if self._deps is None:
                self._plans = renewed(self._plans, program, key[3], args, kwargs, statics, leaves, shape)
            return result
        except (CaptureError, DaemonUnavailable, Incompatible) as error:
            if settings().fallback == "error":
                raise
            if isinstance(error, DaemonUnavailable):
                client_device.release()
            self._warn(error)
            process.session().count_local_run()
            with accounts.of_local_run(self.__name__, error):
                return self._local(*args, **kwargs)
        except Exception as error:
            raise _told(error)  # noqa: B904

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        try:
            return f"<PjitFunction of {self.__wrapped__!r}>"
        except Exception:  # as in JAX, whose text this is: what it wraps has no say in whether it can be shown
            return "<PjitFunction>"

    def __reduce__(self) -> Any:
        return rebuild_jit, (self._fun, self._options.given()), own_attributes(self, self._fun) or None

    def __copy__(self) -> "RemoteFunction":
        return self  # as functions are copied

    def __deepcopy__(self, memo: Any) -> "RemoteFunction":
        return self

    # ---- one stage at a time

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """The function for arguments of this kind, ready to be compiled; nothing runs.

        Args:
            *args: what it would be called with; in place of an array, anything with a shape and a dtype.
            **kwargs: likewise.

        Returns:
            A `stages.Lowered`: its `compile()` has the daemon prepare the program.

        Example:
            >>> step.lower(params, jax.ShapeDtypeStruct((64, 8), "float32")).compile()
        """
        here = functools.partial(self._lowered_here, args, kwargs)
        if self._steps_aside():
            return here()
        dynamic, keywords, statics = self._options.split(args, kwargs)
        leaves, shape = tree.flatten((dynamic, keywords))
        try:
            _, specs, _, settled, _ = self._key_of(leaves, shape, statics, abstract_specs)
        except CaptureError as error:
            if settings().fallback == "error":
                raise
            self._warn(error)
            return here()
        return Lowered(self._wanted(shape, specs, statics, settled), self._prepare, here)

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        """The function traced in this process, for a look at its jaxpr; arguments as for `lower`. Imports jax."""
        jitted = self._jitted_here
        given, keywords = self._arguments_here(args, kwargs, _abstract)
        here = jitted.trace(*given, **keywords)
        return here if self._steps_aside() else Traced(here, self.lower(*args, **kwargs))

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """The tree of results, each with shape and dtype, from a trace in this process. Imports jax.

        Example:
            >>> step.eval_shape(params, x)["w"].shape
            (8, 8)
        """
        jitted = self._jitted_here
        given, keywords = self._arguments_here(args, kwargs, _abstract)
        return jitted.eval_shape(*given, **keywords)

    def _cache_size(self) -> int:
        """How many programs of the function this process has; the name is JAX's."""
        return len(self._programs)

    def clear_cache(self) -> None:
        """Forgets what this process knows of the function; the daemon keeps its programs."""
        self._capture = self._last = None
        self._plans = ()
        self._programs.clear()

    def look(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Specialisation, bool]:
        """What program a call would need, and whether this process has it. Nothing is asked, captured or made.

        Raises:
            TypeError: an argument is no tree of arrays; the message names its path.
        """
        dynamic, keywords, statics = self._options.split(args, kwargs)
        leaves, shape = tree.flatten((dynamic, keywords))
        key = self._key_of(leaves, shape, statics)
        _, specs, _, here, _ = key
        program = self._programs.get(key)
        known = program is not None and program.is_valid(process.session())
        return self._wanted(shape, specs, statics, here), known

    def current_capture(self) -> Capture:
        """The function's own capture, made anew if something that it went through was rebound. It tells what it reads
        from outside.

        Raises:
            CaptureError: it cannot be captured.
        """
        before = self._capture
        if before is None or not before.is_current():
            self._capture = fresh = capture(self._fun, allow_ambient=True)
            if before is not None and fresh.key != before.key and not before.unchanged():
                self._programs.clear()
                self._last, self._plans = None, ()
            return fresh
        return before

    def function_key(self) -> str:
        """The digest of all that it depends on, but for what it declares.

        Raises:
            CaptureError: it cannot be captured, or reads what it does not declare.
        """
        captured = self.current_capture()
        refuse_ambient(captured, self._deps)
        return captured.key

    # ---- on the daemon

    def _remote(
        self, leaves: list[Any], shape: Hashable, statics: tuple[Static, ...], lost: DaemonLost | None = None
    ) -> tuple[Any, _Key, Program]:
        """The result, with the program that made it and the key of that."""
        key = self._key_of(leaves, shape, statics)
        last = self._last
        used: Program

        def program_at(stay: Session) -> Program:
            nonlocal key, used
            # Comparing with the last call's key is quicker than hashing this one: mostly, they hold the same objects.
            program = last[1] if last is not None and not statics and last[0] == key else self._known(key)
            if program is None or not program.is_valid(stay):
                context.check_execution(self.__name__)
                _, specs, _, here, _ = key
                program = self._prepare(stay, self._wanted(shape, specs, statics, here))
                key = _settled(key, program)
                self._programs[key] = program
            self._last = key, program
            used = program
            return program

        result = calling.call(process.session(), program_at, leaves, lost)
        return result, key, used

    def _known(self, key: _Key) -> Program | None:
        try:
            return self._programs.get(key)
        except Exception as error:
            if not key[2]:
                raise
            raise ValueError(
                "static arguments should be comparable using __eq__. The following error was raised when comparing "
                f"two of them: {type(error).__name__}: {error}"
            ) from error

    def _key_of(
        self,
        leaves: list[Any],
        shape: Hashable,
        statics: tuple[Static, ...],
        specs_of: Callable[[Sequence[Any], bool], tuple[Spec, ...]] = specs_of,
    ) -> _Key:
        here = context.current()
        try:
            specs = specs_of(leaves, bool(here) and context.x64(here))
        except NotAnArray as error:
            names = leaf_names(self._fun, tree.structure_of(shape), [where for where, _ in statics])
            raise TypeError(
                f"Error interpreting argument to {self._fun} as an abstract array. The problematic value is "
                f"of type {error} and was passed to the function at path {names[error.number]}. If it is meant to be a "
                "constant of the program, name it in static_argnums or static_argnames."
            ) from None
        given = tuple([(where, type(value), value) for where, value in statics]) if statics else ()
        return shape, specs, given, here, self._deps.stamp() if self._deps else ()

    def _prepare(self, stay: Session, wanted: Specialisation) -> Program:
        context.check_tracing(self.__name__)
        program = program_of(stay, wanted, self.current_capture)
        client_device.say_so(stay.platform)
        if program.prepared.seconds:  # it was made just now
            kind = wanted.shape, wanted.statics, wanted.context, program.capture and program.capture.key
            self._misses.note(wanted, kind)
        return program

    def _wanted(
        self, shape: Hashable, specs: tuple[Spec, ...], statics: tuple[Static, ...], here: context.Context
    ) -> Specialisation:
        return Specialisation(self._fun, self.__name__, self._options, self._deps, shape, specs, statics, here)

    # ---- in this process

    def _steps_aside(self) -> bool:
        """Whether a call is a part of somebody's trace, or no call of a compiled function at all."""
        return process.inside_daemon or context.jit_is_disabled() or trace_state.is_under_way()

    def _local(self, *args: Any, **kwargs: Any) -> Any:
        jitted = self._jitted_here  # jax is loaded from here on
        given, keywords = self._arguments_here(args, kwargs, Array.in_process)
        return jitted(*given, **keywords)

    def _lowered_here(self, args: Any, kwargs: Any) -> Any:
        jitted = self._jitted_here
        given, keywords = self._arguments_here(args, kwargs, _abstract)
        return jitted.lower(*given, **keywords)

    def _arguments_here(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], of_handle: Callable[[Array], Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments for this process's own jax, which takes no handles."""
        leaves, shape = tree.flatten((args, kwargs))
        here = [of_handle(leaf) if type(leaf) is Array else leaf for leaf in leaves]
        found: tuple[tuple[Any, ...], dict[str, Any]] = tree.unflattener(tree.structure_of(shape))(here)
        return found

    @property
    def _jitted_here(self) -> Any:
        if self._jitted is None:
            self._jitted = own_jit(self._fun, **self._options.given())
        return self._jitted

    def _warn(self, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            import jax

            platform = jax.default_backend()
            warn(f"{self.__name__} runs in this process, on the {platform}: {error}", RuntimeWarning)


def _told(error: Exception) -> Exception:
    """What a call raised, as the user is to see it."""
    add_hint(error)
    return error.with_traceback(without_machinery(error.__traceback__))


def _abstract(handle: Array) -> Any:
    return abstract(handle.spec)


def _settled(key: _Key, program: Program) -> _Key:
    """The key under which the next such call will look: to make a program may import jax, and what it was made of was
    looked at once more.
    """
    shape, specs, statics, here, _ = key
    return tree.shape_now(shape), specs, statics, here, program.stamp
