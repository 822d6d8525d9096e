"""Limit on the memory that this process may use, and the amount that it uses."""

import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

GROUPS = Path("/sys/fs/cgroup")
GROUPS_OF_PROCESS = Path("/proc/self/cgroup")
MACHINE_EVENTS = Path("/proc/vmstat")


class LimitedGroup(NamedTuple):
    """A control group with a memory limit.

    Attributes:
        limit: the limit in bytes.
        directory: the directory of the group's files.
        is_v2: whether these files follow version 2 of the kernel's cgroup interface.
    """

    limit: int
    directory: Path
    is_v2: bool


def memory_bytes() -> int:
    """Return the bytes of this machine's memory, or the limit of a control group (container, systemd unit) if lower.

    Every memory budget of the daemon is a fraction of this number.
    """
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([physical, *(group.limit for group in limited_groups(GROUPS_OF_PROCESS))])


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes (its peak if /proc is not readable)."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def memory_kills() -> int:
    """Return the number of processes of this machine that the kernel has killed for lack of memory; 0 if unknown."""
    try:
        lines = MACHINE_EVENTS.read_text().splitlines()
    except OSError:
        return 0
    counts = dict(line.partition(" ")[::2] for line in lines)
    return int(counts.get("oom_kill", 0))


def limited_groups(of_process: Path) -> Iterator[LimitedGroup]:
    """Yield the control groups that limit the memory of a process.

    Args:
        of_process: the process's file /proc/PID/cgroup.
    """
    try:
        lines = of_process.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top, name = (GROUPS / "memory", "memory.limit_in_bytes") if controllers else (GROUPS, "memory.max")
        own = Path(path.lstrip("/"))
        # A group's limit also applies to its descendants, so look at all ancestors. The last one is `top` itself.
        for group in (own, *own.parents):
            try:
                text = (top / group / name).read_text().strip()
            except OSError:  # inside a container, ancestor groups are not visible
                continue
            if text.isdecimal():  # otherwise it is "max"
                yield LimitedGroup(int(text), top / group, not controllers)
