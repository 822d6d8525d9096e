"""What stands in a value as it is written for what is not plain."""

from typing import Any, NamedTuple


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
