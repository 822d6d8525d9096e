"""Canonical form of a code object, kept apart from its location, and code objects made from both."""

import dis
import inspect
import operator
from collections.abc import Iterator, Sequence
from types import CodeType
from typing import Any, NamedTuple

from jitclient.capture.codec.pickler import to_bytes
from jitclient.capture.codec.plain import is_plain
from jitclient.capture.user_code.libraries import stable_code
from jitclient.core.compat import CO_HAS_DOCSTRING
from jitclient.errors import CaptureError

_NOWHERE = "<captured>"
_LOAD_CONST = dis.opmap["LOAD_CONST"]
_STORE_NAME = dis.opmap["STORE_NAME"]
_CONST_OPS = frozenset(dis.hasconst)
# A larger number needs a prefix instruction, which would change lengths.
_MAX_RENUMBERED = 255

Location = tuple[str, int, bytes, str, tuple[str, ...], tuple[str, ...], tuple[str, ...]]
_location = operator.attrgetter(
    "co_filename", "co_firstlineno", "co_linetable", "co_qualname", "co_varnames", "co_freevars", "co_cellvars"
)


class Canonical(NamedTuple):
    """Canonical form of a code object.

    Attributes:
        blob: the bytes that a capture holds.
        codes: the code object and its nested ones, in the order of the bytes.
    """

    blob: bytes
    codes: tuple[CodeType, ...]

    @property
    def locations(self) -> tuple[Location, ...]:
        """Locations of the code object and its nested ones, in the order of `codes`."""
        return tuple(_location(stable_code(code)) for code in self.codes)


class Kept(NamedTuple):
    """Descriptive parts that stay in the canonical form, because some code may read them.

    Attributes:
        docs: docstrings.
        locals: names of local variables.
    """

    docs: bool = False
    locals: bool = False


_NOTHING = Kept()
# Each entry keeps its code alive, so that no other code object gets the same id.
_known: dict[tuple[int, Kept], Canonical] = {}


def canonical_code(code: CodeType, kept: Kept = _NOTHING) -> Canonical:
    """Return the canonical form of `code`; computed once per process, since it depends on nothing else."""
    known = _known.get((id(code), kept))
    if known is None:
        codes: list[CodeType] = []
        blob = to_bytes(_body(code, kept, codes))
        known = _known[id(code), kept] = Canonical(blob, tuple(codes))
    return known


def _body(code: CodeType, kept: Kept, codes: list[CodeType]) -> list[Any]:
    codes.append(code)
    code = stable_code(code)
    new_name = {} if kept.locals else _renamed_locals(code)
    bytecode, consts = _numbered_constants(code, kept.docs)

    def renamed(names: tuple[str, ...]) -> list[str]:
        return [new_name.get(name, name) for name in names]

    def constant(value: Any) -> Any:
        if isinstance(value, CodeType):
            return [_body(value, kept, codes)]
        if not is_plain(value) and type(value) is not slice:
            raise CaptureError(
                f"{code.co_qualname} has a constant of type {type(value).__qualname__}, which the compiler never makes"
            )
        return value

    return [
        code.co_argcount,
        code.co_posonlyargcount,
        code.co_kwonlyargcount,
        code.co_nlocals,
        code.co_stacksize,
        code.co_flags & ~CO_HAS_DOCSTRING,
        bytecode,
        [constant(value) for value in consts],
        list(code.co_names),
        renamed(code.co_varnames),
        code.co_name,
        code.co_exceptiontable,
        renamed(code.co_freevars),
        renamed(code.co_cellvars),
    ]


def _renamed_locals(code: CodeType) -> dict[str, str]:
    """Return new names for local variables; arguments keep theirs.

    Bodies of classes and modules keep all names, because they look names up at run time. `__class__` keeps its name,
    because `super()` looks for a free variable of that name.
    """
    if not code.co_flags & inspect.CO_OPTIMIZED:
        return {}
    n_arguments = code.co_argcount + code.co_kwonlyargcount
    n_arguments += bool(code.co_flags & inspect.CO_VARARGS)
    n_arguments += bool(code.co_flags & inspect.CO_VARKEYWORDS)
    fixed = set(code.co_varnames[:n_arguments])
    names = dict.fromkeys(code.co_varnames + code.co_cellvars + code.co_freevars)
    free = [n for n in names if n not in fixed and n.isidentifier() and not n.startswith("__")]
    return {name: f"_v{i}" for i, name in enumerate(free)}


def _numbered_constants(code: CodeType, keep_docs: bool) -> tuple[bytes, list[Any]]:
    """Return the bytecode and its constants, numbered in the order of first use after the docstring's place.

    Added or edited docstrings then do not change the form, and neither do constants that no instruction loads.
    """
    doc = code.co_consts[0] if keep_docs and code.co_consts else None
    first = doc if isinstance(doc, str) else None
    if len(code.co_consts) > _MAX_RENUMBERED:
        used = {step.arg for step in dis.get_instructions(code) if step.opcode in _CONST_OPS}
        kept = [c if i in used else None for i, c in enumerate(code.co_consts)]
        return code.co_code, [first if 0 not in used else kept[0], *kept[1:]]
    bytecode = bytearray(code.co_code)
    order: dict[tuple[int, str | None], int] = {}
    consts: list[Any] = [first]
    for at in range(0, len(bytecode), 2):
        if bytecode[at] not in _CONST_OPS:
            continue
        stored_as = _name_stored(code, bytecode, at)
        describes = stored_as in _DESCRIBING and not (keep_docs and stored_as == "__doc__")
        place = (bytecode[at + 1], stored_as if describes else None)
        if place not in order:
            value = code.co_consts[bytecode[at + 1]]
            order[place] = len(consts)
            consts.append(_DESCRIBING[place[1]](value) if place[1] else value)
        bytecode[at + 1] = order[place]
    return bytes(bytecode), consts


def _name_stored(code: CodeType, bytecode: bytearray, at: int) -> str | None:
    """Return the name under which the next instruction stores the constant loaded at `at`; None if it stores none."""
    if bytecode[at] != _LOAD_CONST or at + 3 >= len(bytecode) or bytecode[at + 2] != _STORE_NAME:
        return None
    return code.co_names[bytecode[at + 3]]


_DESCRIBING: dict[str | None, Any] = {
    "__doc__": lambda value: None,
    "__firstlineno__": lambda value: 0,
    "__qualname__": lambda value: value.rpartition(".")[2] if isinstance(value, str) else value,
    # The order of a set may determine the order of these attributes.
    "__static_attributes__": lambda value: tuple(sorted(value)) if isinstance(value, tuple) else value,
}
"""Name in a class body that only describes the class -> function that removes its description from the value."""


def build_code(body: Sequence[Any], locations: Iterator[Location]) -> CodeType:
    """Make a code object and its nested ones; `locations` are in the order of the bytes."""
    argcount, posonly, kwonly, n_locals, stacksize, flags, *rest = body
    bytecode, consts, names, varnames, name, exceptions, freevars, cellvars = rest
    file, first_line, lines = _NOWHERE, 1, b""
    location = next(locations, None)
    if location:
        file, first_line, lines, _, varnames, freevars, cellvars = location
    return CodeType(
        argcount,
        posonly,
        kwonly,
        n_locals,
        stacksize,
        flags,
        bytecode,
        tuple([build_code(const[0], locations) if type(const) is list else const for const in consts]),
        tuple(names),
        tuple(varnames),
        file,
        name,
        # The qualified name is part of the location; a captured code object must not show what its key does not hold.
        name,
        first_line,
        lines,
        exceptions,
        tuple(freevars),
        tuple(cellvars),
    )
