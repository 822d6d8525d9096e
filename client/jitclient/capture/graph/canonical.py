"""Canonical digests of single values, for comparisons."""

from typing import Any

from jitclient.capture.graph.schedule import fingerprint_of, order_sets
from jitclient.capture.graph.walker import Walker


def canonical_digest(options: frozenset[str], value: Any) -> bytes | None:
    """Return a digest of everything that a capture would hold for a value; None if the value cannot be captured."""
    alone = Walker(options)
    found = alone.value(value)
    alone.run()
    if alone.failed:
        return None
    order_sets(alone.unordered)
    return fingerprint_of(found)
