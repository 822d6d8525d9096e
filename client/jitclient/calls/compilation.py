"""Getting a program from the daemon: compiled from a capture, or from a trace in this process."""

import contextlib
import functools
import importlib.util
import time
from collections.abc import Callable, Iterable
from typing import Any

from jitclient.calls.client_trace import ClientTrace, structure_of_results, trace, verify
from jitclient.calls.compile_log import CompileLog
from jitclient.calls.deps import Input, stamp_of
from jitclient.calls.identity import identify, parts_of_traced, signature_of
from jitclient.calls.program import Program
from jitclient.calls.specialisation import Specialisation
from jitclient.codec import values
from jitclient.codec.capture import Capture, capture
from jitclient.codec.results.called_back import CalledBack
from jitclient.codec.results.origin import Origin
from jitclient.codec.results.reader import Remade
from jitclient.errors import CaptureError, DaemonError
from jitclient.local_jax import leaked
from jitclient.local_jax.context import check_carried, on_mesh
from jitclient.local_jax.context import current as current_context
from jitclient.notices import labels, progress
from jitclient.notices.warned import warn
from jitclient.sessions import programs
from jitclient.sessions.failures import TraceFailed
from jitclient.sessions.session import Session
from jitclient.trees import tree
from jitclient.wire.messages import DeviceInfo, Escape, Lookup, Prepare, Prepared, Traced, Verb

_ATTEMPTS = 3  # to trace a function while its declared inputs do not change


class _InputsChangedError(Exception):
    """A declared input changed during the trace."""


def program_of(session: Session, wanted: Specialisation, base: Callable[[], Capture]) -> Program:
    """Get the program of a function from its capture or, if that is not possible, from a trace in this process.

    `base` returns the capture of the function alone. Raises `CaptureError` if the function can run in this process
    only; and what the function raised, in this process if it could be traced here.
    """
    failure: BaseException | None = None
    watched: Capture | None = None
    try:
        watched = base()
        return _while_inputs_hold(functools.partial(_from_capture, session, wanted, watched))
    except CaptureError as error:
        why = error
    except TraceFailed as failed:
        failure = failed.error
        why = CaptureError(str(failed))
    if failure is not None and not _has_jax():
        raise failure
    if failure is not None and not _can_leave(wanted):
        session.count_client_trace()
        structure_of_results(wanted, _backend_of(session)[1])  # raises what the function raises here, if anything
        raise failure if session.settings.fallback == "error" else why
    try:
        program = _while_inputs_hold(functools.partial(_from_trace, session, wanted, why, watched))
    except CaptureError as error:
        raise error if str(error) == str(why) else CaptureError(f"{why}; {error}") from error
    if failure is not None:
        warn(f"{wanted.name} is traced in this process: {why}", RuntimeWarning)
    return program


def _from_capture(session: Session, wanted: Specialisation, base: Capture) -> Program:
    """The daemon has it, or compiles it. One with declared inputs is traced here if it is unknown."""
    identity = identify(wanted, base)
    captured, lookup = identity.captured, identity.lookup
    log = CompileLog(wanted, identity.parts, identity.why_here())

    def make() -> tuple[Prepare, bytes]:
        request = Prepare(lookup, wanted.name, _where(wanted.fun))
        if wanted.deps is None and identity.why_here() is None:
            request.verify = session.settings.verify and _can_leave(wanted)
            return request, captured.payload
        traced, log.traced_seconds = _traced(session, wanted, identity.inputs)
        request.traced = Traced(traced.key, traced.results, tree.encode(traced.structure, captured.index_of))
        return request, traced.program

    prepared, generation = _ask(session, lookup, make, log, captured.object_at)
    if prepared.verified is not None:
        verify(wanted, captured, prepared.verified, *_backend_of(session))
    digest = identity.digest()
    origin = Origin(digest, lookup.packages, lambda: _structure_here(session, wanted, digest))
    structure = origin.structure = tree.decode(prepared.tree, Remade(captured, prepared.made, origin.token).object_at)
    _leak(prepared.escapes, captured, wanted)
    called = CalledBack(captured, prepared.callbacks)
    functions = [called.object_at(-1 - number) for number in range(len(prepared.slots))]
    return Program(session, generation, captured, prepared, wanted, structure, stamp_of(identity.inputs), functions)


def _leak(escapes: Iterable[Escape], captured: Capture, wanted: Specialisation) -> None:
    """Put leaked tracers where the trace on the daemon stored values in the user's objects, as plain JAX would. They
    raise `jax.errors.UnexpectedTracerError` when used. Imports jax if it is installed.
    """
    for escape in escapes:
        if _has_jax():
            value = tree.unflattener(tree.decode(escape.tree, captured.object_at))(
                leaked.left_by(wanted.fun, wanted.name, escape.leaves)
            )
            captured.holders.put(escape.holder, escape.name, value)


def _from_trace(session: Session, wanted: Specialisation, why: CaptureError, watched: Capture | None) -> Program:
    """The daemon has its text, or compiles it. Imports jax. `watched` is the capture of the function alone, if there is
    one: it notices when something that the function refers to is rebound.
    """
    check_carried(wanted.context)
    if not _can_leave(wanted):
        raise CaptureError("it is traced in this process, whose shardings and devices its program cannot take along")
    inputs = wanted.deps.now() if wanted.deps else ()
    traced, seconds = _traced(session, wanted, inputs)
    signature = signature_of(wanted, None)
    lookup = Lookup(traced.key, "", (), signature)
    request = Prepare(lookup, wanted.name, _where(wanted.fun), Traced(traced.key, traced.results, tree.UNKNOWN))
    log = CompileLog(wanted, functools.partial(parts_of_traced, wanted, traced.key, signature), why)
    log.traced_seconds = seconds
    prepared, generation = _ask(session, lookup, lambda: (request, traced.program), log, values.nothing)
    return Program(session, generation, watched, prepared, wanted, traced.structure, stamp_of(inputs))


def _while_inputs_hold(make: Callable[[], Program]) -> Program:
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(_InputsChangedError):
            return make()
    raise CaptureError("its declared inputs change while it is traced")


def _traced(session: Session, wanted: Specialisation, inputs: tuple[Input, ...]) -> tuple[ClientTrace, float]:
    """Return the trace, and the seconds that it took."""
    platform, devices = _backend_of(session)
    start = time.perf_counter()
    traced = trace(wanted, platform, devices)
    seconds = time.perf_counter() - start
    session.count_client_trace()
    if wanted.deps is not None and not wanted.deps.still(inputs):
        raise _InputsChangedError
    return traced, seconds


def _structure_here(session: Session, wanted: Specialisation, digest: str) -> tree.Structure:
    """The tree of the results, from a trace in this process of the same function under the same settings."""
    now = identify(wanted, capture(wanted.fun, allow_ambient=wanted.deps is not None))
    if current_context() != wanted.context or now.digest() != digest:
        raise CaptureError(
            f"{wanted.name} is another function by now, or runs under other settings, than when it made this: to look "
            "inside, it must be traced"
        )
    devices: list[DeviceInfo] = []
    with contextlib.suppress(DaemonError):  # without a daemon, the function sees this process's devices
        _, devices = _backend_of(session)
    session.count_client_trace()
    return structure_of_results(wanted, devices)


def _has_jax() -> bool:
    try:
        return importlib.util.find_spec("jax") is not None
    except (ImportError, ValueError):
        return False


def _backend_of(session: Session) -> tuple[str, list[DeviceInfo]]:
    """The daemon's platform and devices."""
    with session:
        return session.platform, session.ask(Verb.DEVICES, None, list[DeviceInfo])


def _ask(
    session: Session, lookup: Lookup, make: Callable[[], tuple[Prepare, bytes]], log: CompileLog, deref: values.Deref
) -> tuple[Prepared, int]:
    def make_with_parts() -> tuple[Prepare, bytes]:
        request, payload = make()
        request.parts = log.parts()
        return request, payload

    wanted = log.wanted
    with progress.shown(labels.of_call(wanted.name, wanted.specs), session.settings.progress) as say:
        prepared, generation = programs.prepare(session, lookup, make_with_parts, deref, say)
    log.report(session, lookup, prepared)
    return prepared, generation


def _can_leave(wanted: Specialisation) -> bool:
    """Whether a program that is traced here can run on the daemon: it must not say where its arrays are."""
    placed = any(spec.sharding is not None for spec in wanted.specs)
    return not (placed or wanted.options.about_devices() or on_mesh(wanted.context))


def _where(fun: Callable[..., Any]) -> str:
    code = getattr(fun, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""
