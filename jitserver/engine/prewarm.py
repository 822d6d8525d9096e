"""Programs that are loaded at the start, before anybody asks: those that are worth most."""

import logging
import threading
import time

from jitserver.cache.worth import worth
from jitserver.engine.engine import Engine

log = logging.getLogger(__name__)

_SHARE = 0.5
"""Of the memory for programs: the rest is for those that are to come."""


def prewarm(engine: Engine, stop: threading.Event) -> int:
    """Loads programs from the disk until the share is full, or told to stop; returns how many.

    Whoever asks for one meanwhile has it loaded at once, on a thread of their own.
    """
    memory, now, count = engine.cache.memory, time.time(), 0
    for info in sorted(engine.cache.store.infos(), key=lambda info: -worth(info, now)):
        if stop.is_set() or memory.nbytes > memory.most_bytes * _SHARE:
            break
        count += engine.programs.warm(info.key)
    log.info("%d programs loaded from the disk", count)
    return count
