"""Describes programs for people."""

import time

from jitclient.codec import values
from jitclient.notices import labels
from jitclient.wire.messages import EntryInfo, Prepare, Signature
from jitserver.engine import context
from jitserver.engine.program import Program


def info_of(key: str, request: Prepare, built: Program) -> EntryInfo:
    """Describes a new program."""
    signature: Signature = request.lookup.signature
    now = time.time()
    return EntryInfo(
        key=key,
        function_key=request.lookup.function_key,
        name=request.name,
        where=request.where,
        label=labels.of_call(request.name, signature.leaves),
        signature=labels.of_call(request.name, signature.leaves, most=len(signature.leaves)),
        options=_options_text(signature),
        context={
            **context.of_process(),
            **{name: context.packages().version(name) for name in request.lookup.packages},
            **{name: str(value) for name, value in built.settings},
        },
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
