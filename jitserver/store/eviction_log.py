"""Log of what left the cache because of a limit: a line for each directory, at most once a minute."""

import collections
import logging
import time
from pathlib import Path

log = logging.getLogger(__name__)

_SECONDS = 60.0


class EvictionLog:
    """Counts of evicted programs and files. A daemon at its limit evicts some for nearly each new program."""

    def __init__(self) -> None:
        self._counts: collections.Counter[Path] = collections.Counter()
        self._logged_at = -_SECONDS

    def add(self, directory: Path, count: int) -> None:
        """Count what left a cache directory, and log all counts unless that was done in the last minute."""
        self._counts[directory] += count
        now = time.monotonic()
        if not self._counts.total() or now - self._logged_at < _SECONDS:
            return
        for path, evicted in (+self._counts).items():
            log.info("disk cache: evicted %d programs and files from %s over the limit", evicted, path)
        self._counts.clear()
        self._logged_at = now
