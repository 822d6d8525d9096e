"""Which of the cached programs comes nearest to another."""

import itertools
from collections.abc import Iterable

from jitclient.wire.explaining import Difference
from jitserver.cache.entry import Entry
from jitserver.cache.makeup import Makeup, differences

_MOST_COMPARED = 200


def nearest(wanted: Makeup, others: Iterable[Entry]) -> tuple[Entry | None, tuple[Difference, ...]]:
    """The entry that differs in the fewest parts, and where; among equals, the first. Looks at so many at most."""
    compared = [(entry, differences(entry.makeup, wanted)) for entry in itertools.islice(others, _MOST_COMPARED)]
    return min(compared, key=lambda pair: len(pair[1]), default=(None, ()))
