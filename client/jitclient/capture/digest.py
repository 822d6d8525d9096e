"""Digests of parts of a program, which do not depend on how the whole is numbered."""

import hashlib
from collections.abc import Callable, Hashable
from typing import Any

from .format import to_bytes


def fingerprint(start: Hashable, parts: Callable[[Any], Any], reference: Callable[[Any], Any]) -> bytes:
    """The digest of all that can be reached from `start`, numbered in the order it is met.

    Args:
        start: where to begin.
        parts: gives what an item consists of, as nested lists and tuples.
        reference: gives the item that a part refers to, or None.
    """
    numbers: dict[Any, int] = {start: 0}
    order = [start]

    def numbered(value: Any) -> Any:
        item = reference(value)
        if item is not None:
            if item not in numbers:
                numbers[item] = len(numbers)
                order.append(item)
            return (numbers[item],)
        if type(value) is tuple:
            return tuple([numbered(part) for part in value])
        if type(value) is list:
            return [numbered(part) for part in value]
        return value

    hasher = hashlib.blake2b(digest_size=16)
    for item in order:  # grows while it is read
        hasher.update(to_bytes(numbered(parts(item))))
    return hasher.digest()
