"""Digests of parts of a program, which do not depend on how the whole is numbered."""

from collections.abc import Callable, Hashable
from typing import Any

from jitclient.codec.graph.nodes import with_references
from jitclient.codec.pickler import to_bytes
from jitclient.codec.words import Reference
from jitclient.digests import digest


def fingerprint(start: Hashable, parts: Callable[[Any], Any], reference: Callable[[Any], Any]) -> bytes:
    """The digest of all that can be reached from `start`, numbered in the order it is met.

    Args:
        start: where to begin.
        parts: gives what an item consists of, as a value.
        reference: gives the item that a part refers to, or None.
    """
    numbers: dict[Any, Reference] = {start: Reference(0)}
    order = [start]

    def numbered(part: Any) -> Reference | None:
        item = reference(part)
        if item is None:
            return None
        if item not in numbers:
            numbers[item] = Reference(len(numbers))
            order.append(item)
        return numbers[item]

    written = bytearray()
    for item in order:  # grows while it is read
        written += to_bytes(with_references(parts(item), numbered))
    return digest(written)
