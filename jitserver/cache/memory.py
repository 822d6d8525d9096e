"""The memory tier: the entries used last, as a mapping from call key to entry."""

from jitserver.cache.entry import Entry
from jitserver.cache.recent import Recent

MOST_ENTRIES = 2000


class Memory(Recent[Entry]):
    """A session that uses an entry holds it too, so letting go never takes a program from under a call."""

    def __init__(self, most: int = MOST_ENTRIES) -> None:
        super().__init__(most)

    def matching(self, prefix: str) -> list[Entry]:
        """The entries whose key starts with `prefix`, or whose function has that name; all where it is empty."""
        return [entry for entry in self.snapshot() if entry.key.startswith(prefix) or entry.info.name == prefix]
