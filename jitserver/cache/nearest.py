"""Which of the cached programs comes nearest to another."""

import itertools
from collections.abc import Iterable

from jitclient.wire.explaining import Difference
from jitserver.cache.call_key import Makeup, differences
from jitserver.cache.tier import Known

_MOST_COMPARED = 200


def nearest(wanted: Makeup, others: Iterable[Known]) -> tuple[Known | None, tuple[Difference, ...]]:
    """The program that differs in the fewest parts, and where; among equals, the first. Looks at so many at most."""
    compared = [(known, differences(known.makeup, wanted)) for known in itertools.islice(others, _MOST_COMPARED)]
    return min(compared, key=lambda pair: len(pair[1]), default=(None, ()))
