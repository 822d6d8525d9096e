"""Features of this machine's processor."""

import functools
import platform
from pathlib import Path

from jitclient.core.digests import digest


@functools.cache
def cpu_features() -> str:
    """Return a digest of the processor's features: a program must not be loaded on a processor that lacks some."""
    try:
        with open(Path("/proc/cpuinfo")) as info:
            flags = next(line for line in info if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        return platform.processor()
    return digest(flags.encode(), 6).hex()
