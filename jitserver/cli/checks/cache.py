"""Checks of the cache directory: whether it can be written, its file system and room, and what runs import."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from jitclient.core.directories import cache_root, environment_directory
from jitclient.errors import SettingsError
from jitclient.wire.labels import size
from jitserver.cli.checks.finding import DaemonState, Finding, verdict
from jitserver.cli.common import number
from jitserver.run import verdict as verdicts
from jitserver.store.environments import cache_directories, disk_bytes, is_missing

_LOW_DISK_BYTES, _FULL_DISK_BYTES = 1 << 30, 100 << 20
_MOUNTS = Path("/proc/self/mounts")
_REMOTE_FILE_SYSTEMS = frozenset(
    # 9p and drvfs: the disks of Windows under WSL.
    ["nfs", "nfs4", "cifs", "smb3", "9p", "drvfs", "fuse.sshfs", "lustre", "gpfs", "beegfs", "ceph", "afs"]
)


def cache(state: DaemonState) -> Iterator[Finding]:
    """Check whether programs can be kept in the cache, and which of its directories no environment uses."""
    root = cache_root()
    try:
        with tempfile.TemporaryFile(dir=environment_directory()):
            pass
    except (OSError, SettingsError) as error:
        do = f"chmod -R u+rwX {root}, or set JITSERVER_CACHE_DIR to a directory of yours; then jitserver restart"
        yield Finding("cache", "problem", f"{root} cannot be written, so no program outlives its daemon: {error}", do)
        return
    free, caches, kind = shutil.disk_usage(root).free, cache_directories(root), _file_system(root)
    says = f"{size(free)} free at {root}; the caches of {number(len(caches), 'environment')} take "
    says += size(sum(map(disk_bytes, caches)))
    says += f" of {size(state.status.max_disk_bytes)}" if state.status is not None else ""
    if free < _FULL_DISK_BYTES:
        yield Finding("cache", "problem", says, "free disk space: without it, programs are cached in memory only")
    else:
        yield verdict("cache", free >= _LOW_DISK_BYTES, says, "free disk space: few programs fit")
    if kind in _REMOTE_FILE_SYSTEMS:
        do = "set JITSERVER_CACHE_DIR to a directory on a local disk: over a network, look-ups are slow and locks fail"
        yield Finding("cache", "warning", f"{root} is on {kind}", do)
    if gone := [directory for directory in caches if is_missing(directory)]:
        says = f"{number(len(gone), 'environment')} of these no longer exist ({size(sum(map(disk_bytes, gone)))})"
        yield Finding("cache", "warning", says, "jitserver purge")


def imports(_: DaemonState) -> Finding:
    """Say which packages `jitserver run` imports in advance, and which it leaves to each run, and why."""
    newest = verdicts.newest()
    if newest is None:
        return Finding("imports", "ok", "no `jitserver run` has imported anything")
    left: dict[str, str] = {}
    for name, why in newest.unfit.items():
        if not why.endswith(verdicts.LEFT):
            left.setdefault(name.partition(".")[0], why)
    fit = {name.partition(".")[0] for name in newest.fit} - left.keys()
    says = f"{number(len(fit), 'package')} imported in advance for `jitserver run`"
    return Finding("imports", "ok", "\n".join([says, *(f"left to each run: {why}" for why in left.values())]))


def _file_system(directory: Path) -> str:
    """Return the kind of the file system of a directory; of mounts at one place, the last one counts."""
    mounts = [line.split()[1:3] for line in _MOUNTS.read_text().splitlines()]
    holding = [each for each in mounts if directory.resolve().is_relative_to(each[0])]
    return max(reversed(holding), key=lambda mount: len(mount[0]))[1]
