"""Plain values: those that are the same wherever they are equal, and of one type."""

from typing import Any

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
