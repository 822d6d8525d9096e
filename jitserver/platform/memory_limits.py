"""How much memory this process may use, and how much it does."""

import os
import resource
from collections.abc import Iterator
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
GROUPS_OF_PROCESS = Path("/proc/self/cgroup")


def memory_bytes() -> int:
    """Bytes of this machine's memory, or fewer where a control group says so: a container, a systemd unit.

    Every budget is a part of this.
    """
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([physical, *_limits(GROUPS, GROUPS_OF_PROCESS)])


def resident_bytes() -> int:
    """Bytes of memory that this process has."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _limits(groups: Path, of_process: Path) -> Iterator[int]:
    """What the groups of this process are limited to, in either version of the kernel's files."""
    try:
        lines = of_process.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top, name = (groups / "memory", "memory.limit_in_bytes") if controllers else (groups, "memory.max")
        own = Path(path.lstrip("/"))
        for group in (own, *own.parents):  # each also holds what is below it; the last is the top itself
            try:
                text = (top / group / name).read_text().strip()
            except OSError:
                continue
            if text.isdecimal():  # else there is no limit: "max"
                yield int(text)
