"""What the machine gives: disk, memory, and the limits of a process."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from jitclient.notices.labels import size
from jitclient.sessions.launch import log_folder
from jitserver.cache.folder import base
from jitserver.doctor.finding import Finding, Scene, judged

_LITTLE_DISK, _NO_DISK = 1 << 30, 100 << 20
_LITTLE_MEMORY = 0.05
_NEARLY = 0.8
_FEWEST_FILES = 1024
_FEWEST_MAPS = 65_530  # the kernel's own default
_GROUPS = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60


def disk(scene: Scene) -> Iterator[Finding]:
    """Room for the cache and the log."""
    folders = {_existing(folder).stat().st_dev: _existing(folder) for folder in (log_folder(), base())}
    for folder in folders.values():
        free = shutil.disk_usage(folder).free
        says = f"{size(free)} free at {folder}"
        if free < _NO_DISK:
            yield Finding("disk", "problem", says, "make room: programs are kept in memory only")
        else:
            yield judged("disk", free >= _LITTLE_DISK, says, "make room: few programs fit")


def open_files(scene: Scene) -> Finding:
    """Each client takes descriptors of the daemon's: for its connection, its life and its shared memory."""
    limit = _limits(scene)["Max open files"]
    used = len(os.listdir(f"{scene.process}/fd"))
    says = f"{used} of {_count(limit)} in use"
    fits = limit is None or (limit >= _FEWEST_FILES and used < _NEARLY * limit)
    return judged("open files", fits, says, "raise `ulimit -n` (systemd: LimitNOFILE=), then jitserver restart")


def locked_memory(scene: Scene) -> Finding:
    """For people who wonder: nothing of ours is locked, some drivers lock what they share with a device."""
    limit = _limits(scene)["Max locked memory"]
    return Finding("locked memory", "ok", "unlimited" if limit is None else f"{size(limit)} at most")


def memory_maps(scene: Scene) -> Finding:
    """Each compiled program takes about three; a process that has no more left dies."""
    limit = int(Path("/proc/sys/vm/max_map_count").read_text())
    used = Path(f"{scene.process}/maps").read_bytes().count(b"\n")
    fits = limit >= _FEWEST_MAPS and used < _NEARLY * limit
    says = f"{used:,} of {limit:,} in use"
    return judged("memory maps", fits, says, "sudo sysctl vm.max_map_count=262144, and keep it in /etc/sysctl.d")


def memory(scene: Scene) -> Finding:
    """What the machine has left."""
    told = dict(re.findall(r"^(\w+):\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE))
    free, total = int(told["MemAvailable"]) << 10, int(told["MemTotal"]) << 10
    fits = free >= _LITTLE_MEMORY * total
    return judged("memory", fits, f"{size(free)} of {size(total)} free", "end something: the kernel may end the daemon")


def control_group(scene: Scene) -> Finding:
    """What the groups of processes that the daemon is in may use together."""
    told = list(_limited_groups(Path(f"{scene.process}/cgroup").read_text()))
    if not told:
        return Finding("control group", "ok", "no limit of memory")
    limit, used, killed = min(told)
    says = f"{size(used)} of {size(limit)} in use"
    if killed:
        says += f"; the kernel has ended {killed} processes for want of memory"
    fits = used < _NEARLY * limit and not killed
    return judged("control group", fits, says, "raise the limit of the container or unit (MemoryMax=)")


def _limited_groups(membership: str) -> Iterator[tuple[int, int, int]]:
    """Limit, memory in use, and processes that were ended, of each group that is limited; both versions of groups."""
    for line in membership.splitlines():
        _, kinds, path = line.split(":", 2)
        if kinds not in ("", "memory"):
            continue
        top, names = (_GROUPS, _VERSION_2) if kinds == "" else (_GROUPS / "memory", _VERSION_1)
        group = top / path.strip("/")
        for folder in (group, *(parent for parent in group.parents if parent.is_relative_to(top))):
            found = _group(folder, *names)
            if found is not None:
                yield found


_VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "memory.oom_control")
_VERSION_2 = ("memory.max", "memory.current", "inactive_file", "memory.events")


def _group(folder: Path, limit: str, used: str, droppable: str, events: str) -> tuple[int, int, int] | None:
    try:
        most = (folder / limit).read_text().strip()
        if most == "max" or int(most) >= _UNLIMITED:
            return None
        pages = _named((folder / "memory.stat").read_text(), droppable)
        killed = _named((folder / events).read_text(), "oom_kill")
        return int(most), int((folder / used).read_text()) - pages, killed
    except OSError:  # inside a container, the groups above are not to be seen
        return None


def _named(text: str, name: str) -> int:
    found = re.search(rf"^{name} (\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else 0


def _limits(scene: Scene) -> dict[str, int | None]:
    """The soft limits of a process by the kernel's names; None: there is none."""
    rows = re.findall(r"^(Max [a-z ]+?) {2,}(\S+)", Path(f"{scene.process}/limits").read_text(), re.MULTILINE)
    return {name: None if value == "unlimited" else int(value) for name, value in rows}


def _count(limit: int | None) -> str:
    return "any number" if limit is None else f"{limit:,}"


def _existing(folder: Path) -> Path:
    while not folder.exists():
        folder = folder.parent
    return folder
