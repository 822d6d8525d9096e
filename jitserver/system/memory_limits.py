"""How much memory a process may use, and how much this one does."""

import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

GROUPS = Path("/sys/fs/cgroup")
GROUPS_OF_PROCESS = Path("/proc/self/cgroup")


class LimitedGroup(NamedTuple):
    """A control group with a memory limit, and whether its files are those of version 2 of the kernel's interface."""

    limit: int
    folder: Path
    is_v2: bool


def memory_bytes() -> int:
    """Bytes of this machine's memory, or the limit of a control group (a container, a systemd unit) if that is less.

    Every budget is a part of this.
    """
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([physical, *(group.limit for group in limited_groups(GROUPS_OF_PROCESS))])


def resident_bytes() -> int:
    """Bytes of memory that this process has."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def limited_groups(of_process: Path) -> Iterator[LimitedGroup]:
    """The control groups that limit the memory of a process, whose file `cgroup` in /proc is given."""
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
        for group in (own, *own.parents):  # a limit also holds for the groups below; the last one is `top` itself
            try:
                text = (top / group / name).read_text().strip()
            except OSError:  # inside a container, the groups above are not visible
                continue
            if text.isdecimal():  # otherwise it is "max"
                yield LimitedGroup(int(text), top / group, not controllers)
