"""Programs of calls: found on the daemon, or made there, in agreement with the caller's own trace.

The trace of the caller decides. On a miss, the daemon traces the function from its capture while this process traces
the function itself, as `jax.jit` would. If both traces agree, the daemon's program is used, here and in all other
processes. If they differ, or jitserver itself fails, the own trace counts: its program is sent to the daemon, or runs
here. `calls/where_to_trace.py` has the exceptions.
"""

import contextlib
from collections.abc import Callable

import msgspec

from jitclient.calls import own_program
from jitclient.calls.agreement import agreed, changed_data, check_hit, settle
from jitclient.calls.capture_costs import CaptureCosts
from jitclient.calls.failures import (
    CaptureNeededError,
    InputsChangedError,
    TracesDifferError,
    failures_to_capture_error,
)
from jitclient.calls.miss import Miss
from jitclient.calls.own_trace import OwnTrace
from jitclient.calls.program import Program
from jitclient.calls.specialisation import Specialisation
from jitclient.calls.where_to_trace import Decision, Where
from jitclient.capture.dump import Capture
from jitclient.capture.manifest import A_DEBUGGER, path_of
from jitclient.core import events
from jitclient.errors import AmbientInput, CaptureError, CrashesDaemon
from jitclient.session.exceptions import TraceFailed
from jitclient.session.session import Session
from jitclient.wire.messages import Manifest, Prepared

_RAISED = "the trace on the daemon raised"
_EXPECTED = ("the trace changes", f"{_RAISED} AmbientInput", f"{_RAISED} CaptureError")
"""Beginnings of reasons that need no note, like those that a capture gives: the report has them."""

# Maximum number of traces of a function whose declared inputs change during the trace.
_MAX_TRACES = 3
_MAX_NAMED = 3


def program_of(
    session: Session, wanted: Specialisation, capture: Callable[..., Capture], own: OwnTrace, costs: CaptureCosts
) -> Program:
    """Return the program of a call.

    Args:
        session: the session with the daemon.
        wanted: the function, options and signature to compile for.
        capture: captures the function in its current state, with extras, and perhaps within a budget.
        own: the trace of this process, which has not run yet.
        costs: costs of the function's captures.

    Raises:
        CaptureError: the call must run in this process.
        DaemonError: there is no daemon to ask, or it is gone.
        Raised: the function raised an exception while this process traced it.
    """
    for _ in range(_MAX_TRACES):
        try:
            return _program(Miss(session, wanted, capture, own, costs))
        except (CaptureNeededError, InputsChangedError):
            # The trace is of a state that no capture shows. The next capture has no limit of time.
            own.forget()
    raise CaptureError("the declared inputs change during the trace")


def _program(miss: Miss) -> Program:
    # A function that is traced within a handler of ours would see our error in `sys.exc_info`.
    decision, error = None, None
    try:
        with failures_to_capture_error():
            decision = miss.identify()
        return _shared(miss, decision)
    except CaptureError as refused:
        error = refused.with_traceback(None)  # which holds this frame
    try:
        with miss.weighing_capture(error) if decision is None else contextlib.nullcontext():
            return _of_own_trace(miss, error)
    finally:
        del error  # or it would keep the trace, by the frames of its next traceback, until garbage is collected


def _shared(miss: Miss, decision: Decision) -> Program:
    """Return the program of a captured function, which other processes find.

    Raises:
        CaptureError: each process must trace the function.
    """
    with failures_to_capture_error():
        found = _found(miss, decision.where)
    if found is not None:
        return found
    if decision.where is Where.CLIENT:
        miss.trace()
        why = CaptureError(decision.reason) if miss.identity.order else None
        with failures_to_capture_error():
            return own_program.for_all_processes(miss, why)
    return _made_and_compared(miss) if decision.where is Where.BOTH else _made(miss, decision.where)


def _of_own_trace(miss: Miss, why: CaptureError) -> Program:
    """Return the program of the own trace, which other processes must make, too, unless the call must run here."""
    crashes = isinstance(why.__cause__, CrashesDaemon)
    if miss.decide(refusal=str(why), crashes_daemon=crashes).where is Where.HERE:
        raise why
    return own_program.for_this_process(miss, why)


def _found(miss: Miss, where: Where) -> Program | None:
    """Look up the program; return None if no other process has made it."""
    captured = miss.identity.captured
    for unverified in (False, True) if where in (Where.DAEMON, Where.DAEMON_FIRST) else (False,):
        lookup = msgspec.structs.replace(miss.identity.lookup, unverified=unverified)
        found, generation = miss.look_up(lookup, captured.object_at)
        if found.prepared is not None:
            program = miss.program_of_daemon(found.prepared, generation)
            if miss.facts.verify == "always" and miss.facts.can_trace:
                check_hit(miss, found.prepared)
            miss.report(lookup, found.prepared)
            return program
    return None


def _made(miss: Miss, where: Where) -> Program:
    """Make the daemon compile the program from the capture, without a comparison."""
    lookup = msgspec.structs.replace(miss.identity.lookup, unverified=True)
    try:
        with failures_to_capture_error():
            prepared, generation = miss.make_from_capture(lookup, Manifest())
    except TraceFailed as error:
        if where is Where.DAEMON:
            raise error.error from None
        failed = error.with_traceback(None)
    else:
        miss.report(lookup, prepared)
        with failures_to_capture_error():
            return miss.program_of_daemon(prepared, generation)
    return _made_after_failure(miss, failed)


def _made_and_compared(miss: Miss) -> Program:
    """Make the daemon compile the program from the capture, and compare it with the trace of this process."""
    lookup = miss.identity.lookup
    # Ask for the devices now: while the daemon traces, the question would need another connection.
    miss.backend()
    try:
        with failures_to_capture_error():
            prepared, generation = miss.make_from_capture(lookup, None, miss.trace_meanwhile)
    except TraceFailed as error:
        failed = error.with_traceback(None)
    else:
        return _compared(miss, prepared, generation)
    return _made_after_failure(miss, failed)


def _compared(miss: Miss, prepared: Prepared, generation: int) -> Program:
    """Return the program of the daemon's trace if this process's own trace agrees with it."""
    try:
        with failures_to_capture_error():
            with events.log.span("compare", miss.wanted.name):
                agreement = agreed(miss, prepared)
            unflatten = miss.own.unflatten()
            program = miss.program(prepared, generation, agreement.capture, unflatten, agreement.functions)
    except TracesDifferError as error:
        difference = str(error)
    else:
        miss.report(miss.identity.lookup, prepared)
        return program
    return _explained(miss, difference)


def _made_after_failure(miss: Miss, failed: TraceFailed) -> Program:
    """Return the program of the own trace, after the daemon's trace raised an exception."""
    miss.trace()
    if isinstance(failed.error, AmbientInput):
        raise _refused(miss, str(failed)) from None
    return _explained(miss, str(failed))


def _explained(miss: Miss, difference: str) -> Program:
    """Return the program of the own trace, for other processes as well if the state of packages explains it.

    Raises:
        CaptureError: the difference has no such explanation, so each process must trace the function.
    """
    try:
        with failures_to_capture_error():
            decision = miss.decide(foreign_functions=miss.own.unreachable_functions())
            if decision.where is Where.HERE:
                difference = decision.reason
            elif names := changed_data(miss):
                shown = ", ".join(path_of(name) for name in names[:_MAX_NAMED])
                why = CaptureError(f"the program changed data in installed packages: {shown}")
                return own_program.for_all_processes(miss, why)
    except CaptureError as error:
        difference = "; ".join(dict.fromkeys((difference, str(error))))
    raise _refused(miss, difference)


def _refused(miss: Miss, why: str) -> CaptureError:
    """Return the reason to raise, after telling the daemon to let each process trace the function from now on."""
    with contextlib.suppress(Exception):
        if not miss.own.reads.unobserved_reason:
            settle(miss, refusal=why)
    # A breakpoint is no fault of the function.
    if not why.startswith(_EXPECTED) and not miss.own.reads.unobserved_reason.startswith(A_DEBUGGER):
        miss.note = f"{miss.wanted.name} is traced in each process: {why}"
    return CaptureError(why)
