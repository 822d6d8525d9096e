"""Serialization of programs. Loading a program from disk runs no user code."""

import dataclasses
from typing import Any

import msgspec

from jitclient.capture.codec import values
from jitclient.jaxside.ffi import register
from jitclient.wire.messages import ForeignFunction, Message, Signature, Slot, Spec
from jitserver.programs import executables
from jitserver.programs.callbacks import Executables
from jitserver.programs.program import CompiledProgram, from_portable
from jitserver.store.checked_files import unpacked


class StoredFacts(Message):
    """A program without its executable: fields of `CompiledProgram`, and the encoded `settings` of its signature."""

    specs: tuple[Spec, ...]
    results: tuple[Spec, ...]
    tree: bytes
    donated: tuple[int, ...]
    may_raise: bool
    settings: tuple[tuple[str, bytes], ...]
    code_bytes: int
    made: bytes = b""
    slots: tuple[Slot, ...] = ()
    callbacks: bytes = b""
    has_effects: bool = False
    evidence: bytes = b""
    lookup_digest: bytes = b""
    agreed_order_free: bytes = b""
    foreign: tuple[ForeignFunction, ...] = ()


def facts_of(program: CompiledProgram, settings: tuple[tuple[str, bytes], ...]) -> bytes:
    """Serialize a program without its executable.

    Args:
        program: the program.
        settings: the encoded settings of its signature.
    """
    same = {name: getattr(program, name) for name in StoredFacts.__struct_fields__ if name != "settings"}
    return msgspec.msgpack.encode(StoredFacts(settings=settings, **same))


def evidence_in(facts: bytes) -> bytes:
    """Return the digest of the evidence of a serialized program; empty if no client compared it."""
    return unpacked(facts, StoredFacts).evidence


def executable_of(program: CompiledProgram) -> bytes:
    """Serialize the executable of a program.

    Raises:
        Exception: JAX cannot serialize the executable, or XLA did not compile it in this process, and it is not in the
            cache of compilations either.
    """
    if program.found_key:
        found = executables.found_to_bytes(program.run, program.found_key)
        if found is not None:
            return found
    if program.is_found:
        raise ValueError("the executable was loaded from disk, and only the process that compiled it can serialize it")
    return program.run.to_bytes() if program.slots else executables.to_bytes(program.run)


def loaded(facts: bytes, executable: bytes | memoryview) -> CompiledProgram:
    """Load a serialized program. The bytes must come from jitserver's own cache, because loading can run code in them.

    Raises:
        Exception: the bytes are not a program that can run here.
    """
    decoded = unpacked(facts, StoredFacts)
    register(decoded.foreign)
    run = Executables(decoded.slots, serialized=executable) if decoded.slots else executables.from_bytes(executable)
    return CompiledProgram(
        run=run,
        settings=tuple((name, values.decode(value, values.no_deref)) for name, value in decoded.settings),
        is_found=True,
        **_same(decoded),
    )


def compiled(facts: bytes, program: bytes | memoryview, signature: Signature, name: str) -> CompiledProgram:
    """Compile a program of which another kind of machine has serialized the facts and the trace.

    Raises:
        Exception: the bytes are not a program that can run here.
    """
    decoded = unpacked(facts, StoredFacts)
    built = from_portable(program, decoded.foreign, decoded.results, signature, name)
    return dataclasses.replace(built, **{**_same(decoded), "code_bytes": built.code_bytes, "exported": bytes})


def _same(facts: StoredFacts) -> dict[str, Any]:
    return {name: getattr(facts, name) for name in StoredFacts.__struct_fields__ if name != "settings"}
