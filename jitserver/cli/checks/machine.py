"""Checks of the machine's resources: disk, memory, and limits of processes."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from jitclient.core.directories import cache_root
from jitclient.session.launch import log_directory
from jitclient.wire.labels import size
from jitclient.wire.memfd import possible
from jitserver.cli.checks.finding import DaemonState, Finding, verdict
from jitserver.cli.common import helpers_line, number
from jitserver.run import helpers, history
from jitserver.store.environments import cache_directories, disk_bytes
from jitserver.system.memory_limits import LimitedGroup, limited_groups

_LOW_DISK_BYTES, _FULL_DISK_BYTES = 1 << 30, 100 << 20
_HIGH_USE = 0.8
_MOUNTS = Path("/proc/self/mounts")
_REMOTE_FILE_SYSTEMS = frozenset(
    # 9p and drvfs: the disks of Windows under WSL.
    ["nfs", "nfs4", "cifs", "smb3", "9p", "drvfs", "fuse.sshfs", "lustre", "gpfs", "beegfs", "ceph", "afs"]
)
_MIN_MAPS = 65_530  # the kernel's default
# Version 1 of cgroups reports a number above this if there is no limit.
_UNLIMITED = 1 << 60
_FILES_V1 = ("memory.usage_in_bytes", "total_inactive_file", "memory.oom_control")
_FILES_V2 = ("memory.current", "inactive_file", "memory.events")


def disk(state: DaemonState) -> Iterator[Finding]:
    """Check the free disk space for the cache and the log."""
    root = cache_root()
    directories = {_existing(directory).stat().st_dev: _existing(directory) for directory in (log_directory(), root)}
    for directory in directories.values():
        free = shutil.disk_usage(directory).free
        says = f"{size(free)} free at {directory}"
        if root.is_relative_to(directory):
            caches = cache_directories(root)
            says += f"; the caches of {number(len(caches), 'environment')} take {size(sum(map(disk_bytes, caches)))}"
            says += f" of {size(state.status.max_disk_bytes)}" if state.status is not None else ""
        if free < _FULL_DISK_BYTES:
            yield Finding("disk", "problem", says, "free disk space: without it, programs are cached in memory only")
        else:
            yield verdict("disk", free >= _LOW_DISK_BYTES, says, "free disk space: few programs fit")


def file_system(_: DaemonState) -> Finding:
    """Check whether the cache is on a local disk, where locks hold and look-ups do not wait for a network."""
    directory = _existing(cache_root()).resolve()
    mounts = [line.split()[1:3] for line in _MOUNTS.read_text().splitlines()]
    # Of mounts at one place, the last one counts.
    place, kind = max(
        reversed([each for each in mounts if directory.is_relative_to(each[0])]), key=lambda at: len(at[0])
    )
    do = "set JITSERVER_CACHE_DIR to a directory on a local disk: over a network, look-ups are slow and locks may fail"
    return verdict("file system", kind not in _REMOTE_FILE_SYSTEMS, f"the cache is on {kind}, mounted at {place}", do)


def shared_memory(_: DaemonState) -> Finding:
    """Check whether processes can share memory, which a container may forbid."""
    fits = possible()
    says = "large arrays cross in shared memory" if fits else "there is none: arrays are copied through the socket"
    return verdict(
        "shared memory", fits, says, "allow memfd_create and file seals in the container (its seccomp profile)"
    )


def memory_maps(state: DaemonState) -> Finding:
    """Check the limit of memory maps: each program needs about three, and a process that exhausts the limit dies."""
    limit = int(Path("/proc/sys/vm/max_map_count").read_text())
    used = Path(f"{state.process}/maps").read_bytes().count(b"\n")
    fits = limit >= _MIN_MAPS and used < _HIGH_USE * limit
    says = f"{used:,} of {limit:,} in use"
    return verdict("memory maps", fits, says, "sudo sysctl vm.max_map_count=262144, also in /etc/sysctl.d")


def control_group(state: DaemonState) -> Finding:
    """Check the memory limit of the daemon's container or systemd unit."""
    groups = [group for group in limited_groups(Path(f"{state.process}/cgroup")) if group.limit < _UNLIMITED]
    if not groups:
        return Finding("control group", "ok", "no memory limit")
    tightest = min(groups)
    limit, (used, killed) = tightest.limit, _usage(tightest)
    says = f"{size(used)} of {size(limit)} in use"
    if killed:
        says += f"; the kernel has killed {killed} processes that needed more"
    fits = used < _HIGH_USE * limit and not killed
    return verdict("control group", fits, says, "raise the memory limit of the container or unit (MemoryMax=)")


def _usage(group: LimitedGroup) -> tuple[int, int]:
    """Return a group's memory use, without droppable pages, and the number of its processes killed by the kernel."""
    used, droppable, events = _FILES_V2 if group.is_v2 else _FILES_V1
    pages = _named((group.directory / "memory.stat").read_text(), droppable)
    killed = _named((group.directory / events).read_text(), "oom_kill")
    return int((group.directory / used).read_text()) - pages, killed


def _named(text: str, name: str) -> int:
    found = re.search(rf"^{name} (\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else 0


def _existing(directory: Path) -> Path:
    while not directory.exists():
        directory = directory.parent
    return directory


def run_helpers(_: DaemonState) -> Iterator[Finding]:
    """List the helpers of `jitserver run`, which take memory, and what they do not import."""
    if found := helpers.running():
        yield Finding("run helpers", "ok", helpers_line(found))
    if reasons := history.left_to_runs():
        yield Finding("run imports", "ok", f"left to each run: {'; '.join(sorted(reasons.values()))}")
