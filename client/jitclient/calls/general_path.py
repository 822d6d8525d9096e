"""General path of calls: calls of a function that no call plan covers, and its stages one at a time."""

import functools
import math
import sys
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from jitclient.arrays.array import Array
from jitclient.calls import compile_log
from jitclient.calls.arguments import NotAnArray, spec_of, specs_of
from jitclient.calls.attempts import CallFailed, attempted
from jitclient.calls.capture_costs import CaptureCosts
from jitclient.calls.compilation import program_of
from jitclient.calls.deps import Deps
from jitclient.calls.failures import OwnFailure
from jitclient.calls.identity import raise_if_ambient
from jitclient.calls.in_process import InProcess
from jitclient.calls.moved_in import LocalCalls
from jitclient.calls.own_trace import OwnTrace
from jitclient.calls.plan import Plan, Repeat, SplitCall, renewed
from jitclient.calls.program import Program
from jitclient.calls.raised import Raised
from jitclient.calls.specialisation import Specialisation
from jitclient.calls.stages import Lowered, Traced, abstract_spec
from jitclient.capture.budget import Budget
from jitclient.capture.dump import Capture, capture
from jitclient.core import events
from jitclient.core.clock import monotonic
from jitclient.core.notices import warn
from jitclient.core.settings import settings
from jitclient.errors import (
    ArrayBudgetExceeded,
    ArrayLost,
    CaptureError,
    DaemonLost,
    DaemonUnavailable,
    Incompatible,
    JitserverError,
    WrongUser,
)
from jitclient.jaxside import client_device, context, transfer_guard, tree, unchanged
from jitclient.jaxside.naming import leaf_names
from jitclient.jaxside.options import JitOptions, Static
from jitclient.session import process
from jitclient.session.session import Session
from jitclient.wire.messages import Spec

_Key = tuple[Hashable, tuple[Spec, ...], tuple[tuple[int | str, type, Any], ...], context.Context, Hashable]

_NO_DAEMON = (DaemonUnavailable, WrongUser)
_REFUSED_SECONDS = 10.0
"""Time after which a daemon that refused a call, as for too few devices, is asked again: it may have restarted."""

_warned_about_daemon: set[str] = set()
"""Reasons of all functions, such as a daemon of another version, of which this process has been warned."""


class GeneralPath:
    """General path of one function, with its capture, programs and call plans in this process."""

    plans: tuple[Plan, ...] = ()
    failed = CallFailed
    """Type of the exception for a call that failed on the daemon."""

    def __init__(
        self, fun: Callable[..., Any], name: str, options: JitOptions, deps: Deps | None, has_static_leaves: bool
    ) -> None:
        self._fun = fun
        self._name = name
        self._options = options
        self._has_statics = bool(options.static_argnums or options.static_argnames)
        self._deps = deps
        self.in_process = InProcess(fun, name, options, has_static_leaves)
        self._capture: Capture | None = None
        self.capture_costs = CaptureCosts(fun)
        self.programs: dict[_Key, Program] = {}
        self._last: tuple[_Key, Program] | None = None
        # Calls that run in this process until a time, as long as their captures are current.
        self._here: dict[_Key, tuple[Capture | None, float]] = {}
        self._local: LocalCalls | None = None
        self._has_static_leaves = has_static_leaves
        self._is_daemon_missing = False
        self._warned = False

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any], lost: DaemonLost | None) -> Any:
        """Call the function. `lost` is the error of a call plan that may have made this call already.

        Raises:
            CallFailed: the call raised an exception on the daemon or in a callback.
            CaptureError, DaemonError: the call cannot run on the daemon, and JITSERVER_FALLBACK=error.
            DaemonLost: the daemon may have run the call, and repeating it is not allowed.
            BaseException: the function raised it while it was traced.
        """
        here = self._settings_here()
        if here is None:
            return self.in_process.call(args, kwargs)
        key: _Key | None = None
        program: Program | None = None
        why: JitserverError
        try:
            call = self._split(args, kwargs)
            key, session = self._key_of(call, here), process.session()
            jax = sys.modules.get("jax")
            # Inlined, because every call would pay for a function.
            is_guarded = jax is not None and jax.config.jax_transfer_guard_host_to_device not in transfer_guard.OFF
            if is_guarded:
                _ask_guard(call.leaves)
            if self._here and self._runs_here(key):
                session.count_local_run()
                return self.in_process.call(args, kwargs)

            local: LocalCalls | None = None

            def attempt() -> Any:
                nonlocal program, local
                if self._is_daemon_missing:
                    session.connect()  # before a capture, which would be for nothing
                    self._is_daemon_missing = False
                program = self._program_at(session, key, call)
                local = None if program.moving.done is None else self._local_calls(program)
                if local is not None:
                    run = functools.partial(program.call, call.leaves)
                    return local.call(args, kwargs, run, program.moving.fast_program)
                return program.call(call.leaves, functools.partial(self._again, key, call, program))

            result = attempted(session, attempt, lost)
            assert program is not None
            # Plans do not ask the guard.
            if self._deps is None and not is_guarded:
                repeat = functools.partial(self._again, key)
                if self._local is None:
                    self.plans = renewed(self.plans, program, here, call, repeat)
                else:
                    self._renew_plans(program, local, here, call, repeat)
            return result
        except Raised as raised:
            raised.raise_error()
        except (CaptureError, DaemonUnavailable, Incompatible, DaemonLost) as error:
            may_have_run = isinstance(error, DaemonLost) and (program is not None or lost is not None)
            if may_have_run or settings().fallback == "error":
                raise
            if isinstance(error, _NO_DAEMON):
                client_device.release()
                self._is_daemon_missing = True
            elif isinstance(error, CaptureError) and key is not None:
                self._here[key] = self._capture, math.inf
            elif isinstance(error, Incompatible) and key is not None:
                self._here[key] = self._capture, monotonic() + _REFUSED_SECONDS
            process.session().count_local_run()
            why = error
        except JitserverError:
            raise
        except Exception as error:
            ran = program is not None and (program.prepared.donated or program.prepared.has_effects)
            if isinstance(error, CallFailed) or ran or settings().fallback == "error":
                raise
            why = OwnFailure(f"jitserver failed ({type(error).__name__}: {str(error)[:200]}). Please report this")
        # Not within the handlers: an exception of the user's would have ours as its context.
        return self._call_here(args, kwargs, why.with_traceback(None))  # which holds this frame

    def _local_calls(self, program: Program) -> LocalCalls | None:
        """Return the calls that this process makes itself; None if those of a program that has moved in cannot be."""
        if program.order is not None or self._deps is not None or self._has_static_leaves:
            return None
        if self._local is None or not self._local.is_current():
            before, watch = self._local, None if program.capture is None else program.capture.watch
            self._local = LocalCalls(self._fun, self._name, self._options, watch)
            self.plans = tuple([plan for plan in self.plans if before is None or plan is not before.plan])
        return None if self._local.plan is None else self._local

    def _renew_plans(
        self, program: Program, local: LocalCalls | None, here: context.Context, call: SplitCall, repeat: Repeat
    ) -> None:
        """Cover such a call by a plan. That of the calls which this process makes itself is the last.

        It fetches the arrays of the daemon in the arguments before it finds that a program has not moved in.
        """
        assert self._local is not None
        last = () if self._local.plan is None else (self._local.plan,)
        others = tuple([plan for plan in self.plans if plan not in last])
        if local is None:
            others = renewed(others, program, here, call, repeat)
        else:
            own = [plan for made in program.plans.values() for plan in made or ()]
            others = tuple([plan for plan in others if plan not in own])
        self.plans = (*others, *last)

    def _again(self, key: _Key, call: SplitCall, before: Program, leaves: Sequence[Any]) -> list[Array]:
        """Make a queued call again, whose `leaves` are copies, at the next daemon; wait for it, and return its results.

        Raises:
            ArrayLost: the function has changed since, or the call cannot run on the daemon any more.
            ArrayBudgetExceeded: there is no room for the results.
        """
        session = process.session()

        def attempt() -> list[Array]:
            program = self._program_at(session, key, call)
            if not program.is_same(before):
                raise ArrayLost("the function has changed since")
            return program.call_again(leaves)

        try:
            return attempted(session, attempt)
        except CallFailed as failed:
            raised = failed.error
        except ArrayBudgetExceeded:
            raise
        except Exception as error:
            raise ArrayLost(f"a call of {self._name} cannot be repeated at the next daemon: {error}") from error
        raise raised

    def _call_here(self, args: tuple[Any, ...], kwargs: dict[str, Any], why: JitserverError) -> Any:
        """Make a call in this process, and warn of the reason."""
        # If it is a mistake of the user's, JAX's error says all.
        is_ours = isinstance(why, OwnFailure) or isinstance(why.__cause__, OwnFailure)
        if not is_ours:
            self._warn(why)
        with compile_log.of_local_run(self._name, why):
            result = self.in_process.call(args, kwargs)
        if is_ours:
            self._warn(why)
        return result

    def _runs_here(self, key: _Key) -> bool:
        """Return whether such a call runs in this process, and none of its dependencies was rebound since."""
        found = self._here.get(key)
        if found is None:
            return False
        watched, until = found
        if monotonic() < until and (watched is None or watched.unchanged()):
            return True
        self._here.pop(key, None)
        return False

    def explained(self, error: BaseException, args: tuple[Any, ...], kwargs: dict[str, Any]) -> BaseException:
        """Return the exception for the error of a call; where JAX's checks found a NaN, one that names the operation.

        As in JAX, the function then runs once more, one operation at a time, in this process.
        """
        if isinstance(error, FloatingPointError) and context.checks_values():
            try:
                self.in_process.call(args, kwargs)
            except FloatingPointError as found:
                return found
            # An argument was donated, or the function raised something else.
            except Exception:
                return error
        return error

    # ---- one stage at a time

    def lower(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result of `RemoteFunction.lower`."""
        args, kwargs = self.in_process.marked(args, kwargs)
        lower_here = functools.partial(self.in_process.stage, "lower", args, kwargs)
        here = self._settings_here()
        if here is None:
            return lower_here()
        why: CaptureError | None = None
        try:
            call = self._split(args, kwargs)
            key = self._key_of(call, here, abstract_spec)
        except CaptureError as error:
            if settings().fallback == "error":
                raise
            why = error.with_traceback(None)
        if why is not None:
            self._warn(why)
            return lower_here()
        own, first_wanted = self._own_trace(call, key), self._wanted(key)

        def program(session: Session, wanted: Specialisation) -> Program:
            # JAX also keeps its traces for `lower`.
            known = self._known(key) if wanted is first_wanted else None
            return known if known and known.is_valid(session) else self._prepare(session, wanted, own)

        return Lowered(first_wanted, program, lower_here)

    def trace(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result of `RemoteFunction.trace`."""
        here = self.in_process.stage("trace", args, kwargs)
        return here if self._settings_here() is None else Traced(here, self.lower(args, kwargs))

    # ---- programs and captures

    def clear(self) -> None:
        """Forget capture, programs and plans; the daemon keeps its programs."""
        self._capture = self._last = self._local = None
        self.plans = ()
        self.programs.clear()

    def look(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Specialisation, bool]:
        """Return the specialisation of a call, and whether this process has its program. Captures nothing."""
        key = self._key_of(self._split(*self.in_process.marked(args, kwargs)), context.current())
        program = self.programs.get(key)
        return self._wanted(key), program is not None and program.is_valid(process.session())

    def fresh_capture(self, extras: tuple[Any, ...] = (), budget: Budget | None = None) -> Capture:
        """Capture the function in its current state, including changes in place, with the extras of a call key.

        The `ambient` of the capture names the ambient inputs that the function reads.
        """
        before = self._capture
        with events.log.span("capture", self._name):
            self._capture = fresh = capture(self._fun, extras, True, True, budget)
        if before is not None and fresh.function_key != before.function_key and not before.unchanged():
            # Programs without a capture belong to functions that change their captured state. As in JAX, such programs
            # stay.
            self.programs = {key: program for key, program in dict(self.programs).items() if program.capture is None}
            self._last, self._local, self.plans = None, None, ()
            self.in_process.clear_cache()
        return fresh

    def function_key(self) -> str:
        """Return the digest of all that the function depends on, except declared inputs.

        Raises:
            CaptureError: the function cannot be captured.
        """
        captured = self.fresh_capture()
        raise_if_ambient(captured, self._deps)
        return captured.function_key

    # ---- on the daemon

    def _split(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> SplitCall:
        statics: tuple[Static, ...] = ()
        given: tuple[Any, Any] = args, kwargs
        if self._has_statics:
            *given, statics = self._options.split(args, kwargs)  # type: ignore[assignment]
        leaves, shape = tree.flatten(tuple(given))
        return SplitCall(args, kwargs, statics, leaves, shape)

    def _own_trace(self, call: SplitCall, key: _Key) -> OwnTrace:
        """Return the trace of this process for a call, which has not run yet."""
        args, kwargs = call.args, call.kwargs
        dynamic = None
        if tree.is_of_jitserver(call.shape):
            dynamic = self._options.split(args, kwargs)[:2] if self._has_statics else (args, kwargs)
        jitted = functools.partial(self.in_process.for_trace, key[3])
        return OwnTrace(jitted, args, kwargs, call.leaves, key[1], self._options.of_program(), dynamic)

    def _program_at(self, session: Session, key: _Key, call: SplitCall) -> Program:
        last = self._last
        # Comparing with the last key is faster than hashing this one, because both mostly hold the same objects.
        try:
            program = last[1] if last is not None and not key[2] and last[0] == key else self._known(key)
        except ValueError as error:
            # The user's: JAX in this process may know only one of the static arguments, and would not compare.
            raise CallFailed(error) from None
        if program is None or not program.is_valid(session):
            context.check_execution(self._name)
            program = self._prepare(session, self._wanted(key), self._own_trace(call, key))
            key = _settled(key, program)
            self.programs[key] = program
        self._last = key, program
        return program

    def _known(self, key: _Key) -> Program | None:
        try:
            return self.programs.get(key)
        except Exception as error:
            if not key[2]:
                raise
            raise ValueError(
                "static arguments should be comparable using __eq__. The following error was raised when comparing "
                f"two of them: {type(error).__name__}: {error}"
            ) from error

    def _key_of(self, call: SplitCall, here: context.Context, spec_of: Callable[[Any, bool], Spec] = spec_of) -> _Key:
        try:
            specs = specs_of(call.leaves, bool(here) and context.x64(here), spec_of)
        except NotAnArray as error:
            names = leaf_names(self._fun, tree.structure_of(call.shape), [where for where, _ in call.statics])
            raise TypeError(
                f"Error interpreting argument to {self._fun} as an abstract array. The problematic value is "
                f"of type {error.shown} and was passed to the function at path {names[error.number]}.\n"
                "If it is meant to be a constant of the program, name it in static_argnums or static_argnames."
            ) from None
        statics = tuple([(where, type(value), value) for where, value in call.statics]) if call.statics else ()
        return call.shape, specs, statics, here, self._deps.stamp() if self._deps else ()

    def _prepare(self, session: Session, wanted: Specialisation, own: OwnTrace) -> Program:
        context.check_tracing(self._name)
        with events.log.program(wanted.label, wanted.where):
            program = program_of(session, wanted, self.fresh_capture, own, self.capture_costs)
        client_device.notify_once(session.platform)
        return program

    def _wanted(self, key: _Key) -> Specialisation:
        shape, specs, given, here, _ = key
        statics = tuple([(where, value) for where, _, value in given])
        return Specialisation(self._fun, self._name, self._options, self._deps, shape, specs, statics, here)

    # ---- in this process

    def _settings_here(self) -> context.Context | None:
        """Return the JAX settings of a call; None if the call is part of a trace, or jit is disabled."""
        return None if process.inside_daemon else unchanged.settings_here()

    def _warn(self, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            if str(error) not in _warned_about_daemon:
                warn(f"{self._name} runs in this process{_place()}: {error}")
            if isinstance(error, _NO_DAEMON) or (isinstance(error, Incompatible) and error.is_of_daemon):
                _warned_about_daemon.add(str(error))


def _ask_guard(leaves: Sequence[Any]) -> None:
    try:
        transfer_guard.check(leaves)
    # JAX's own error, of a class that only jaxlib names.
    except Exception as error:
        raise CallFailed(error) from None


def _place() -> str:
    import jax

    try:
        return f", on the {jax.default_backend()}"
    except Exception:  # the call will raise it
        return ""


def _settled(key: _Key, program: Program) -> _Key:
    """Return the key that the next such call will have.

    Making the program may have imported jax, and has read the declared inputs again.
    """
    shape, specs, statics, here, _ = key
    return tree.shape_now(shape), specs, statics, here, program.stamp
