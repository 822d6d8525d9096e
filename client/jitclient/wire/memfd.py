"""Anonymous files in memory whose size is sealed: what both ends of a local connection can share."""

import fcntl
import os
import sys

SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL if sys.platform == "linux" else 0
"""Seals of a block: no peer can truncate it, which would kill readers with SIGBUS."""

MIN_CAPACITY = 64 << 10
"""Size of the smallest block in bytes."""


def sealed(nbytes: int) -> int:
    """Return the file descriptor of a new file of this size.

    Raises:
        OSError: no memory or no file descriptor is left, or a sandbox forbids it.
    """
    fd = os.memfd_create("jitserver", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, nbytes)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    except BaseException:
        os.close(fd)
        raise
    return fd


def possible() -> bool:
    """Return whether processes of this machine can share memory."""
    if sys.platform != "linux" or not hasattr(os, "memfd_create"):
        return False
    try:
        os.close(sealed(MIN_CAPACITY))
    except OSError:  # a sandbox may forbid it
        return False
    return True
