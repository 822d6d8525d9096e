"""Getting a program from the daemon: out of a capture, or out of a trace in this process."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

from jitclient import key_parts, labels, misses, progress, tree
from jitclient.capture import Capture, capture
from jitclient.client_trace import ClientTrace, trace
from jitclient.context import Context, check_carried
from jitclient.deps import Resolved
from jitclient.errors import CaptureError
from jitclient.program import Program
from jitclient.session import Session
from jitclient.specialisation import Specialisation
from jitclient.wire import values
from jitclient.wire.messages import Lookup, Prepare, Prepared, Signature, Traced

_ATTEMPTS = 3  # to trace a function while what it reads stays as it is


class _InputsChangedError(Exception):
    """A declared input is otherwise after the trace than before."""


def from_capture(session: Session, wanted: Specialisation, base: Capture) -> Program:
    """The program of a captured function: the daemon has it, or makes it. `base` is the function's own capture.

    A function that says what it reads besides is traced here, if the daemon does not have it.

    Raises:
        CaptureError: something cannot be captured, or the function reads ambient inputs while it is traced.
        BaseException: what the function raised.
    """
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(_InputsChangedError):
            return _from_capture(session, wanted, base)
    raise CaptureError("its declared inputs change while it is traced")


def _from_capture(session: Session, wanted: Specialisation, base: Capture) -> Program:
    declared = wanted.deps.now() if wanted.deps else None
    captured, lookup = _identified(wanted, base, declared)
    parts = functools.partial(key_parts.of_captured, wanted, captured, lookup.signature)

    def make() -> tuple[Prepare, bytes]:
        request = Prepare(lookup, wanted.name, _where(wanted.fun))
        if wanted.deps is None or declared is None:
            return request, captured.payload
        traced = _traced(session, wanted)
        if wanted.deps.differ(declared):
            raise _InputsChangedError
        request.traced = Traced(traced.key, traced.results, tree.encode(traced.structure, captured.index_of))
        return request, traced.program

    prepared, generation = _ask(session, wanted, lookup, make, parts, captured.object_at)
    structure = tree.decode(prepared.tree, captured.object_at)
    return Program.of(session, generation, captured, prepared, wanted.specs, structure)


def from_trace(session: Session, wanted: Specialisation) -> Program:
    """The program of a function that is traced here: the daemon has its text, or compiles it. Imports jax.

    Raises:
        CaptureError: the program calls back into this process, and can run nowhere else.
        BaseException: what the function raised.
    """
    watched = _watch_of(wanted.fun)  # before the trace, which may rebind something itself
    check_carried(wanted.context)
    traced = _traced(session, wanted)
    signature = Signature(
        tree=None,
        leaves=wanted.specs,
        statics=(),
        donated=wanted.options.donated_leaves(wanted.structure, wanted.statics),
        options=tuple((name, values.encode(value)) for name, value in sorted(wanted.options.of_program().items())),
        context=_encoded(wanted.context),
    )
    lookup = Lookup(traced.key, "", (), signature)
    request = Prepare(lookup, wanted.name, _where(wanted.fun), Traced(traced.key, traced.results, None))
    parts = functools.partial(key_parts.of_traced, wanted, traced.key, signature)
    prepared, generation = _ask(session, wanted, lookup, lambda: (request, traced.program), parts, values.nothing)
    return Program.of(session, generation, watched, prepared, wanted.specs, traced.structure)


def identify(wanted: Specialisation, base: Capture) -> tuple[Capture, Lookup]:
    """What names the program of a captured function to the daemon, and the capture of all that its signature mentions.

    Raises:
        CaptureError: something cannot be captured.
    """
    return _identified(wanted, base, wanted.deps.now() if wanted.deps else None)


def _identified(wanted: Specialisation, base: Capture, declared: Resolved | None) -> tuple[Capture, Lookup]:
    check_carried(wanted.context)
    captured = _capture_with_extras(wanted, base, declared)
    return captured, Lookup(captured.key, base.key, captured.packages, _signature(wanted, captured), captured.locations)


def _capture_with_extras(wanted: Specialisation, base: Capture, declared: Resolved | None) -> Capture:
    found = [*tree.objects_in(wanted.structure)]
    given = [value for _, value in wanted.statics] + list(wanted.options.of_program().values())
    found += [value for value in given if not values.is_plain(value)]
    if declared is not None:
        found.append(declared)
    extras = tuple({id(thing): thing for thing in found}.values())
    return capture(wanted.fun, extras, allow_ambient=declared is not None) if extras else base


def _signature(wanted: Specialisation, captured: Capture) -> Signature:
    ref = captured.index_of
    options = sorted(wanted.options.of_program().items())
    return Signature(
        tree=tree.encode(wanted.structure, ref),
        leaves=wanted.specs,
        statics=tuple((where, values.encode(value, ref)) for where, value in wanted.statics),
        donated=wanted.options.donated_leaves(wanted.structure, wanted.statics),
        options=tuple((name, values.encode(value, ref)) for name, value in options),
        context=_encoded(wanted.context),
    )


def _traced(session: Session, wanted: Specialisation) -> ClientTrace:
    with session.connected():  # the trace is for the daemon's platform
        platform = session.platform
    traced = trace(wanted.fun, wanted.name, wanted.structure, wanted.statics, wanted.specs, platform)
    session.count_client_trace()
    return traced


def _ask(
    session: Session,
    wanted: Specialisation,
    lookup: Lookup,
    make: Callable[[], tuple[Prepare, bytes]],
    parts: Callable[[], bytes],
    deref: values.Deref,
) -> tuple[Prepared, int]:
    def make_with_parts() -> tuple[Prepare, bytes]:
        request, payload = make()
        request.parts = parts()
        return request, payload

    with progress.shown(labels.of_call(wanted.name, wanted.specs), session.settings.progress) as say:
        prepared, generation = session.prepare(lookup, make_with_parts, deref, say)
    if prepared.seconds and session.settings.explain:
        misses.say_why(session, wanted, lookup, parts(), prepared)
    return prepared, generation


def _watch_of(fun: Callable[..., Any]) -> Capture | None:
    """What tells when something that the function reads is rebound, as far as it can be captured."""
    try:
        return capture(fun, allow_ambient=True)
    except CaptureError:
        return None


def _encoded(context: Context) -> tuple[tuple[str, values.Value], ...]:
    return tuple((name, values.encode(value)) for name, value in context)


def _where(fun: Callable[..., Any]) -> str:
    code = getattr(fun, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""
