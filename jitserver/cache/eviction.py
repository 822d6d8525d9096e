"""What a program is worth: the one rule by which the cache keeps, drops and loads first."""

from jitclient.wire.messages import EntryInfo

HALF_LIFE_SECONDS = 3 * 24 * 3600.0
OVERHEAD_BYTES = 1 << 20
"""What keeping any program costs beside the bytes of its own: files, rows, and JAX's objects around it."""


def worth(info: EntryInfo, now: float) -> float:
    """Seconds that it would take to make the program again, halved for every three days without use, for each byte
    that it takes.
    """
    age = max(0.0, now - info.last_used)
    recency: float = 0.5 ** (age / HALF_LIFE_SECONDS)
    return sum(info.seconds.values()) * recency / (info.disk_bytes + OVERHEAD_BYTES)
