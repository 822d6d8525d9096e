"""Features of this machine's processor, and the number of threads that XLA uses on it."""

import functools
import os
import platform
import sys
from os import close, read  # the program may patch `os` and `open`
from os import open as open_fd

from jitclient.core.digests import digest

if sys.platform == "linux":
    from os import sched_getaffinity


@functools.cache
def cpu_features() -> str:
    """Return a digest of the processor's features: a program must not be loaded on a processor that lacks some."""
    try:
        number = open_fd("/proc/cpuinfo", os.O_RDONLY)
        try:
            # A single read returns the first processor with all its features.
            info = read(number, 1 << 16)
        finally:
            close(number)
        flags = next(line for line in info.splitlines(keepends=True) if line.startswith((b"flags", b"Features")))
    except (OSError, StopIteration):
        return platform.processor()
    return digest(flags, 6).hex()


def xla_threads() -> str:
    """Return what decides for how many threads XLA compiles a program; empty if unknown (macOS)."""
    if sys.platform != "linux":
        return ""
    return f"{len(sched_getaffinity(0))} {os.environ.get('NPROC')}"
