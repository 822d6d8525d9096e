"""Entries of the cache: a program in memory or on disk, and its eviction score."""

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

from jitclient.core.digests import digest
from jitclient.wire.introspection import EntryInfo

OVERHEAD_BYTES = 320 << 10
"""Bytes that any cached program costs beyond its own: files, rows, and JAX's Python objects."""

MACHINE, MANIFEST = "machine", "manifest"
"""Rows of a call key: the machine's own part, which decides how a program is compiled, and the manifest."""

HALF_LIFE_SECONDS = 3 * 24 * 3600.0
_IDLE_SECONDS = 10.0
_FRESH_SECONDS = 1.0


@dataclasses.dataclass(frozen=True)
class KeyComponents:
    """The inputs that determine a call key.

    Attributes:
        rows: the digest of each row of the table of keys; two keys differ if and only if one of these digests does.
    """

    rows: Mapping[str, bytes]

    @property
    def portable_key(self) -> str:
        """The key of the program on machines of any kind."""
        return _portable(self.rows, MACHINE)

    @property
    def portable_base(self) -> str:
        """The portable key without the manifest."""
        return _portable(self.rows, MACHINE, MANIFEST)


def _portable(rows: Mapping[str, bytes], *without: str) -> str:
    held = {label: row for label, row in rows.items() if label not in without}
    return digest(b"".join(f"{label}:".encode() + row for label, row in held.items())).hex()


@dataclasses.dataclass(frozen=True)
class Stored:
    """A program on disk.

    Attributes:
        info: the description for lists and statistics.
        components: the inputs that determine the call key.
        facts: bytes that only the engine interprets.
        request: bytes that only the engine interprets.
        executable: the digest of the executable's blob; empty if there is none.
        capture: the digest of the capture's blob; empty if there is none.
    """

    info: EntryInfo
    components: KeyComponents
    facts: bytes
    request: bytes
    executable: str = ""
    capture: str = ""

    @property
    def key(self) -> str:
        """The call key of the program."""
        return self.info.key


MAX_RECIPE_BYTES = 1 << 20
"""Maximum size in bytes of a capture that is kept in memory for a program that the disk does not have."""


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A program's description and its capture, from which the program can be made again."""

    stored: Stored
    capture: bytes


@dataclasses.dataclass(eq=False)
class Entry:
    """A program in memory.

    Attributes:
        info: the description for lists and statistics.
        program: the engine's object.
        components: the inputs that determine the call key.
        unload: makes an entry's program release its executable until the next call.
        holders: the sessions that may call the program.
        recipe: the recipe of the program, if the disk does not have it.
    """

    info: EntryInfo
    program: Any
    components: KeyComponents
    # Takes the entry, because a function that held it would be a cycle, which only a garbage collection frees.
    unload: Callable[["Entry"], None] = lambda entry: None
    holders: set[Any] = dataclasses.field(default_factory=set)
    recipe: Recipe | None = None

    @property
    def key(self) -> str:
        """The call key of the program."""
        return self.info.key

    @property
    def nbytes(self) -> int:
        """Approximate memory use in bytes."""
        return OVERHEAD_BYTES + self.info.code_bytes

    def is_evictable(self) -> bool:
        """Return whether the executable may leave memory.

        A pinned program stays. A program that a session holds may leave only if it is idle, and can be loaded or made
        again when it is called.
        """
        if self.info.pinned:
            return False
        # A session that has just looked the program up is about to register as a holder.
        if not self.holders:
            return time.time() - self.info.last_used > _FRESH_SECONDS
        can_return = bool(self.info.disk_bytes) or self.recipe is not None
        return can_return and time.monotonic() - self.program.last_call > _IDLE_SECONDS


def eviction_score(info: EntryInfo, now: float) -> float:
    """Return a program's eviction score, by which the cache evicts (lowest first) and preloads (highest first).

    The score is the number of seconds that making the program again would take, halved for every three days without
    use, per byte that the program occupies.
    """
    age = max(0.0, now - info.last_used)
    recency: float = 0.5 ** (age / HALF_LIFE_SECONDS)
    return sum(info.seconds.values()) * recency / (info.disk_bytes + OVERHEAD_BYTES)
