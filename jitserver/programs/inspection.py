"""Descriptions of programs: for lists, as text, and from the compiler's analyses."""

import time

from jitclient.capture.codec import values
from jitclient.errors import CaptureError, ProtocolError
from jitclient.wire import labels
from jitclient.wire.introspection import EntryInfo
from jitclient.wire.messages import Inspected, Prepare, Signature
from jitserver.programs import context
from jitserver.programs.program import CompiledProgram, loaded_for, text_of_capture, text_of_client

TRACED = ("jaxpr", "stablehlo")
"""Views of a program that require another trace."""


def info_of(key: str, request: Prepare, built: CompiledProgram) -> EntryInfo:
    """Return the description of a new program."""
    signature: Signature = request.lookup.signature
    now = time.time()
    return EntryInfo(
        key=key,
        function_key=request.lookup.function_key,
        name=request.name,
        where=request.where,
        label=labels.of_program(request),
        signature=f"{request.name}({', '.join(map(labels.of_spec, signature.leaves))})",
        options=_options_text(signature),
        context={**context.of_lookup(request.lookup), **{name: str(value) for name, value in built.settings}},
        seconds=dict(built.seconds),
        saved=0.0,
        hits=0,
        created=now,
        last_used=now,
        code_bytes=built.code_bytes,
    )


def _options_text(signature: Signature) -> str:
    def text(value: bytes) -> str:
        return values.text_of(values.read(value))

    options = [f"{name}={text(value)}" for name, value in signature.options]
    options += [f"donated leaves={signature.donated}"] if signature.donated else []
    statics = [f"argument {where!r}={text(value)}" for where, value in signature.statics]
    return ", ".join(options + statics)


def inspected(program: CompiledProgram, what: str) -> Inspected:
    """Return a view: "hlo" (or "text"), "costs" (estimates of flops, bytes, ...) or "memory" (bytes by use).

    Raises:
        ProtocolError: there is no such view.
    """
    match what:
        case "text" | "hlo":
            return Inspected(text=program.run.as_text() or "")
        case "costs":
            return Inspected(costs=dict(program.run.cost_analysis() or {}))
        case "memory":
            found = program.run.memory_analysis()
            names = [name for name in dir(found) if name.endswith("_in_bytes")]
            return Inspected(memory={name: int(getattr(found, name)) for name in names})
    raise ProtocolError(f"a program has no view {what!r:.40}")


def retraced(request: Prepare, payload: bytes, what: str) -> Inspected:
    """Return the "jaxpr" or "stablehlo" of a program by tracing its capture again.

    Raises:
        CaptureError: the trace failed; the message contains the function's exception.
    """
    if request.traced is not None:
        return Inspected(text_of_client(payload, what))
    try:
        loaded = loaded_for(request.lookup, payload)
        return Inspected(text_of_capture(loaded, request.lookup.signature, request.name, what))
    except CaptureError:
        raise
    # The user's function may raise any exception, including SystemExit.
    except BaseException as error:
        raise CaptureError(f"{request.name} cannot be traced again: {error!r}") from error
    finally:
        context.packages().record_loaded()
