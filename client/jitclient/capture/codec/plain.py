"""What a value consists of as it is written: plain values, which are the same wherever they are equal and of one type,
and what stands for all others.
"""

from typing import Any, NamedTuple

ATOMS = frozenset({type(None), bool, int, float, str, bytes})

PLAIN = frozenset({*ATOMS, complex, tuple, frozenset, range, type(...), type(NotImplemented)})
"""Types whose values are plain, if what they hold is."""


def is_plain(value: Any) -> bool:
    """Whether a value is made of plain types all the way down."""
    kind = type(value)
    if kind in ATOMS:
        return True
    if kind is tuple or kind is frozenset:
        return all(map(is_plain, value))
    return kind in PLAIN


class Reduced(NamedTuple):
    """A value without an identity that counts: what a maker gives for these arguments, as pickles have it."""

    maker: str
    args: tuple[Any, ...]


class Reference(int):
    """The number of an object that both sides know."""


class Numbered:
    """Base of what stands for an object that has a number by the time it is written."""

    __slots__ = ("index",)
    index: int | None


COMPOUND = frozenset({tuple, list, Reduced})
"""What a value may be that has values inside."""


def held_in(value: Any, kind: type) -> list[Any]:
    """What a value is or has inside that is of one type."""
    if type(value) is kind:
        return [value]
    found: list[Any] = []
    if type(value) in COMPOUND:
        _collect(value, kind, found)
    return found


def _collect(value: Any, kind: type, found: list[Any]) -> None:
    for part in value:
        if type(part) is kind:
            found.append(part)
        elif type(part) in COMPOUND:
            _collect(part, kind, found)
