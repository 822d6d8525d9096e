"""Entries of the lab's cache: programs, traces, compilations, and lists of names.

They have no captures, sources or arrays. A program's entry has the name of its call key, which covers all that the
machine must be: platform, devices or features of the processor, versions. Its trace has the name of the portable key,
which lacks the driver and the features of the processor. The names in the manifests of a portable base key are one
entry. Of two members who add to it in the same moment, one is forgotten until its program is made again somewhere.

All but the last begin with the seconds that their content took to make, which `contents.valued` reads alone.
"""

import os
import struct

import msgspec

from jitclient.wire.introspection import EntryInfo
from jitclient.wire.messages import Message, Prepare
from jitserver.store.catalog import FORMAT
from jitserver.store.checked_files import unpacked
from jitserver.store.entry import KeyComponents, Stored

SECONDS = struct.Struct(">d")

FOLDER = f"programs-4.{FORMAT}"
"""Folder of the entries of this version. Other versions of jitserver have others, side by side."""

COMPILATIONS = "compilations-1"
"""Folder of the compilations by text, whose form does not depend on jitserver's own formats."""

PROGRAM, TRACE, EXECUTABLE = "program", "trace", "executable"
"""Last parts of the names of entries."""


class SharedProgram(Message):
    """A program in the lab's cache, with its `code`. `by` says who has made it, on which host.

    The code is an executable, or in the entry of a trace, what `programs/portable.py` writes.
    """

    info: EntryInfo
    rows: dict[str, bytes]
    facts: bytes
    request: bytes
    code: bytes
    by: str


class Names(Message):
    """A list of names in manifests of a base key, and the seconds that making one of its programs took."""

    names: tuple[str, ...]
    seconds: float


def program_name(key: str) -> str:
    """Return the name of a program's entry."""
    return f"{FOLDER}/{key[:2]}/{key}/{PROGRAM}"


def trace_name(portable_key: str) -> str:
    """Return the name of the entry of a program's trace."""
    return f"{FOLDER}/{portable_key[:2]}/{portable_key}/{TRACE}"


def names_of(stored: Stored) -> tuple[str, str]:
    """Return the names that the entries of a program and its trace must have."""
    return program_name(stored.key), trace_name(stored.components.portable_key)


def names_name(base: str) -> str:
    """Return the name of the entry with the lists of names of a portable base key."""
    return f"{FOLDER}/{base[:2]}/{base}/names"


def compilation_name(key: str) -> str:
    """Return the name of the entry of an executable, by the key of its text."""
    return f"{COMPILATIONS}/{key[:2]}/{key}/{EXECUTABLE}"


def public(stored: Stored) -> Stored:
    """Return a stored program as others may see it: without the places of its code, names and inputs."""
    info = msgspec.structs.replace(
        stored.info, where=os.path.basename(stored.info.where), hits=0, saved=0.0, pinned=False, in_memory=False
    )
    request = unpacked(stored.request, Prepare)
    request.lookup = msgspec.structs.replace(request.lookup, locations=b"", manifests=())
    request.where, request.names, request.inputs = info.where, (), ()
    return Stored(info, KeyComponents(dict(stored.components.rows)), stored.facts, msgspec.msgpack.encode(request))


def encoded(stored: Stored, code: bytes, by: str, seconds: float) -> bytes:
    """Return the entry of a program, or of a trace, that took some seconds to make."""
    seen = public(stored)
    return SECONDS.pack(seconds) + msgspec.msgpack.encode(
        SharedProgram(seen.info, dict(seen.components.rows), seen.facts, seen.request, code, by)
    )


def encoded_names(lists: list[Names]) -> bytes:
    """Return lists of names as they are signed."""
    return msgspec.msgpack.encode(lists)


def decoded(payload: bytes | memoryview) -> tuple[Stored, SharedProgram]:
    """Return a program from the lab's cache as the disk has it, and the entry itself.

    Raises:
        Corrupt: it was written by another version.
    """
    shared = unpacked(memoryview(payload)[SECONDS.size :], SharedProgram)
    stored = Stored(shared.info, KeyComponents(shared.rows), shared.facts, shared.request)
    return stored, shared
