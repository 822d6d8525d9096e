"""Plain values, and stand-ins for all others in written values.

Plain values of one type are interchangeable wherever they are equal.
"""

from typing import Any, NamedTuple

ATOMS = frozenset({type(None), bool, int, float, str, bytes})

PLAIN = frozenset({*ATOMS, complex, tuple, frozenset, range, type(...), type(NotImplemented)})
"""Types whose values are plain if all values inside are plain."""


def is_plain(value: Any) -> bool:
    """Return whether a value consists only of plain types, at all levels."""
    kind = type(value)
    if kind in ATOMS:
        return True
    if kind is tuple or kind is frozenset:
        return all(map(is_plain, value))
    return kind in PLAIN


class Reduced(NamedTuple):
    """Value whose identity does not matter: the result of a named maker for these arguments."""

    maker: str
    args: tuple[Any, ...]


class Reference(int):
    """Number of an object that both sides know."""


class Numbered:
    """Base class of stand-ins for objects, which must have a number before they are written."""

    __slots__ = ("index",)
    index: int | None


COMPOUND = frozenset({tuple, list, Reduced})
"""Types of values that may hold other values."""


def held_in(value: Any, kind: type) -> list[Any]:
    """Return a value and the values inside it that have exactly one type."""
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
