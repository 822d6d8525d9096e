"""Code objects made from their canonical form and a location."""

from collections.abc import Iterator, Sequence
from types import CodeType
from typing import Any

from jitclient.codec.user_code.code import Location

_NOWHERE = "<captured>"


def build_code(body: Sequence[Any], locations: Sequence[Location]) -> CodeType:
    """Make a code object, with those nested in it; `locations` are in the order of the bytes."""
    return _build(body, iter(locations))


def _build(body: Sequence[Any], locations: Iterator[Location]) -> CodeType:
    location = next(locations, None)
    *counts, bytecode, consts, names, varnames, name, exceptions, freevars, cellvars = body
    argcount, posonly, kwonly, n_locals, stacksize, flags = counts
    file, first_line, lines = location[:3] if location else (_NOWHERE, 1, b"")
    if location:
        varnames, freevars, cellvars = location[4:7]
    made = [_build(const[0], locations) if type(const) is list else const for const in consts]
    return CodeType(
        argcount,
        posonly,
        kwonly,
        n_locals,
        stacksize,
        flags,
        bytecode,
        tuple(made),
        tuple(names),
        tuple(varnames),
        file,
        name,
        name,  # the qualified name is a location; what a key does not hold must not show
        first_line,
        lines,
        exceptions,
        tuple(freevars),
        tuple(cellvars),
    )


def nested(code: CodeType) -> Iterator[CodeType]:
    """A code object and those nested in it, in the order of their locations."""
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from nested(const)
