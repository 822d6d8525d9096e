"""Loads the most valuable programs when the daemon starts."""

import logging
import threading
import time

from jitserver.cache.entry import worth
from jitserver.engine.engine import Engine

log = logging.getLogger(__name__)

_SHARE = 0.5
"""Of the memory for programs. The rest is for new ones."""


def prewarm(engine: Engine, stop: threading.Event) -> list[str]:
    """Loads programs from the disk until the share is full or `stop` is set; returns their keys, the best first.

    A client that requests one meanwhile does not wait: its own thread loads the program.
    """
    memory, now, keys = engine.cache.memory, time.time(), list[str]()
    for info in sorted(engine.cache.store.infos(), key=lambda info: -worth(info, now)):
        if stop.is_set() or memory.nbytes > memory.most_bytes * _SHARE:
            break
        if engine.programs.warm(info.key):
            keys.append(info.key)
    log.info("%d programs loaded from the disk", len(keys))
    return keys
