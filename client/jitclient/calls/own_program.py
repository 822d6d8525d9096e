"""Programs made from the own trace, and compiled on the daemon."""

import msgspec

from jitclient.calls import compile_log
from jitclient.calls.agreement import manifest_of, unchanged
from jitclient.calls.deps import stamp_of
from jitclient.calls.failures import InputsChangedError, failures_to_capture_error
from jitclient.calls.identity import request_of, signature_of
from jitclient.calls.miss import Miss
from jitclient.calls.own_trace import Exported
from jitclient.calls.program import Program
from jitclient.calls.where_to_trace import Where
from jitclient.capture.codec import values
from jitclient.capture.dump import Capture
from jitclient.core import events
from jitclient.core.notices import warn
from jitclient.errors import CaptureError
from jitclient.jaxside import context, tree
from jitclient.wire.messages import Evidence, Lookup, Manifest, Prepare, TracedProgram


def for_all_processes(miss: Miss, why: CaptureError | None) -> Program:
    """Make the daemon compile the own trace, so that other processes find the program by the function's own key.

    `why` is the cause to log; if None, the log has the differences from the nearest program.

    Raises:
        CaptureError: the program or its trace cannot be shared.
    """
    own, identity = miss.own, miss.identity
    exported = _exported(miss)
    decision = miss.decide(unobserved=own.reads.unobserved_reason)
    if decision.where is Where.EACH_PROCESS:
        raise CaptureError(decision.reason)
    after = unchanged(miss)
    structure, evidence = tree.encode(own.structure(), miss.ref), own.comparable_evidence(miss.ref)
    traced = TracedProgram(exported.key, exported.results, structure, evidence, exported.foreign, own.seconds)
    return _sent(miss, identity.request(identity.lookup, traced, manifest_of(miss)), exported.program, why, after)


def for_this_process(miss: Miss, why: CaptureError) -> Program:
    """Make the daemon compile the own trace, which other processes must make, too.

    Raises:
        CaptureError: the program can run in this process only.
        InputsChangedError: a declared input changed after the trace.
    """
    wanted, before = miss.wanted, miss.inputs
    miss.inputs = wanted.deps.now() if wanted.deps else ()
    if miss.own.has_run() and stamp_of(miss.inputs) != stamp_of(before):
        raise InputsChangedError
    miss.trace()
    try:
        with failures_to_capture_error():
            exported = _exported(miss)
            lookup = Lookup(exported.lookup_key(), "", (), signature_of(wanted, None))
            traced = TracedProgram(exported.key, exported.results, tree.UNKNOWN, foreign=exported.foreign)
            request = request_of(wanted, lookup, traced, Manifest())
            made = _sent(miss, request, exported.program, why, _current(miss))
    except CaptureError as error:
        raise error if str(error) in str(why) else CaptureError(f"{why}; {error}") from error
    if miss.note:
        warn(miss.note)
    return made


def _exported(miss: Miss) -> Exported:
    """Return the own trace's program in a form for the daemon.

    Raises:
        CaptureError: the program can run in this process only.
    """
    wanted, own = miss.wanted, miss.own
    miss.check_arguments()
    is_placed = any(spec.sharding is not None for spec in wanted.specs) or bool(wanted.options.about_devices())
    miss.decide(
        setting=context.uncarried(wanted.context),
        is_placed=is_placed or context.on_mesh(wanted.context),
        callbacks=own.callbacks_for_people(),
        foreign_functions=own.unreachable_functions(),
    ).raise_if_here()
    with events.log.span("lower", wanted.name):
        return own.exported(wanted.name)


def _current(miss: Miss) -> Capture | None:
    """Return a capture that notices later changes.

    The result is None if the function cannot be captured, or the trace itself changed the captured state.
    """
    if miss.captured is None:
        return None
    try:
        now = miss.capture_again()
    except CaptureError:
        return None
    if now.function_key == miss.captured.function_key:
        return now
    miss.record_change(now)
    return None


def _sent(
    miss: Miss,
    request: Prepare,
    program: bytes,
    why: CaptureError | None,
    watched: Capture | None,
) -> Program:
    session = miss.session
    found, generation = miss.look_up(request.lookup, values.no_deref)
    prepared = found.prepared
    if prepared is None:
        prepared, generation = miss.make_from_program(request, program)
    session.count_client_trace()
    compile_log.report(session, miss.wanted, request, prepared, watched, why, miss.own.seconds)
    if request.traced is not None and not request.traced.evidence.digest:  # the key is the program's own digest
        prepared = msgspec.structs.replace(prepared, evidence=Evidence(request.lookup.capture_key.encode()))
    return miss.program(prepared, generation, watched, miss.own.unflatten())
