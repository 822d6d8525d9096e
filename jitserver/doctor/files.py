"""Folders, sockets, locks, the log and the cache: owners, permissions, and stale or damaged files."""

import os
import re
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

from jitclient.notices.labels import size
from jitclient.sessions import launch
from jitclient.wire.address import runtime_folder
from jitserver.cache.catalog import CATALOG, Catalog
from jitserver.cache.files import Corrupt
from jitserver.cache.folder import base, parts_there
from jitserver.cache.store import QUARANTINE
from jitserver.doctor.finding import DaemonState, Finding, verdict

_LISTENING = "00010000"  # the kernel's flag in /proc/net/unix
_RENAMED = re.compile(r"\.([^/]+\.sock)\.\d+$")  # the name at first, which the kernel keeps: see `Address.listen`


def folder_of_sockets(state: DaemonState) -> Finding:
    """The folder of the daemon's socket: no other user may put a socket there."""
    folder = state.local.path.parent
    if not folder.exists():
        return Finding("socket folder", "ok", f"{folder}: the first daemon makes it")
    return _folder("socket folder", folder)


def socket(state: DaemonState) -> Finding:
    """The socket: only its user may connect, and a daemon listens."""
    path = state.local.path
    if not path.exists():
        return Finding("socket", "ok", f"{path}: none, as no daemon runs")
    found = path.stat()
    says = f"{path}: {_owner(found.st_uid)}, {stat.filemode(found.st_mode)}"
    if not stat.S_ISSOCK(found.st_mode):
        return Finding("socket", "problem", f"{says}: not a socket", f"rm {path}")
    if found.st_uid not in (os.getuid(), 0) or found.st_mode & 0o077:
        return Finding("socket", "problem", f"{says}: others can use it", f"jitserver stop; rm {path}")
    if state.status is None and str(path) not in _listening():
        do = "nothing: the next daemon replaces it"
        return Finding("socket", "warning", f"{says}: left by a daemon that died", do)
    return Finding("socket", "ok", says)


def lock(state: DaemonState) -> Finding:
    """The lock: a daemon that holds it must answer."""
    path = state.local.lock_path
    if not path.exists():
        return Finding("lock", "ok", "not held: no daemon was started here")
    if not state.local.is_held():
        return Finding("lock", "ok", f"{path}: not held")
    pid = path.read_text().strip() or "unknown"
    if state.status is not None:
        return Finding("lock", "ok", f"{path}: held by pid {pid}")
    do = f"wait: it is starting or stopping; after some minutes: jitserver logs, then kill {pid}"
    return Finding("lock", "problem", f"{path}: held by pid {pid}, which does not answer", do)


def left_behind(state: DaemonState) -> Finding:
    """Sockets on which no process listens, from removed environments or daemons that died."""
    folder, heard = runtime_folder(), _listening()
    sockets = sorted(path for path in folder.iterdir() if path.is_socket())
    dead = [path for path in sockets if str(path) not in heard and path != state.local.path]
    if not dead:
        return Finding("left behind", "ok", f"nothing in {folder}")
    names = " ".join(map(str, dead))
    return Finding("left behind", "warning", f"{len(dead)} sockets on which no process listens", f"rm {names}")


def log(state: DaemonState) -> Finding:
    """The log: a daemon in the background must be able to write it."""
    path = launch.log_path(state.local)
    if not os.access(path.parent, os.W_OK):
        return Finding("log", "problem", f"{path.parent} is not writable", "make it writable, or no daemon can start")
    if not path.exists():
        return Finding("log", "ok", f"{path}: none yet")
    found = path.stat()
    says = f"{path}: {_owner(found.st_uid)}, {size(found.st_size)}"
    return verdict("log", os.access(path, os.W_OK), says, f"chmod u+w {path}, or rm it", "problem")


def cache(state: DaemonState) -> Iterator[Finding]:
    """The cache on the disk. Files there are trusted, so no other user may write them."""
    there = parts_there()
    if not there:
        yield Finding("cache", "ok", f"{base()}: nothing of this environment yet")
        return
    yield _folder("cache", there[0])
    yield _catalog(there[0] / CATALOG)
    aside = there[0] / QUARANTINE
    damaged = len(list(aside.iterdir())) if aside.is_dir() else 0
    if damaged:
        yield Finding(
            "set aside",
            "warning",
            f"{damaged} files in {aside}: damaged, or from other versions",
            "nothing, if this is rare: they are deleted after a week; if it happens often, check the disk",
        )


def _catalog(path: Path) -> Finding:
    if not path.exists():
        return Finding("catalog", "ok", "no programs yet")
    try:
        catalog = Catalog(path, writes=False)
        found, total = len(catalog.infos()), catalog.total()
        catalog.close()
    except (sqlite3.Error, Corrupt) as error:
        do = "jitserver restart: the daemon then makes a new catalog"
        return Finding("catalog", "warning", f"{path}: {error}", do)
    return Finding("catalog", "ok", f"{found:,} programs, {size(total)}")


def _folder(check: str, folder: Path) -> Finding:
    """Whether this user can write a folder, and no other user can."""
    found = folder.stat()
    says = f"{folder}: {_owner(found.st_uid)}, {stat.filemode(found.st_mode)}"
    if found.st_uid not in (os.getuid(), 0):
        return Finding(check, "problem", f"{says}: it belongs to another user", f"chown or remove {folder}")
    if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
        return Finding(check, "problem", f"{says}: others can write there", f"chmod 700 {folder}")
    return verdict(check, os.access(folder, os.W_OK), says, f"make {folder} writable for you", "problem")


def _owner(uid: int) -> str:
    return {0: "root's", os.getuid(): "yours"}.get(uid, f"of uid {uid}")


def _listening() -> set[str]:
    """The paths of the Unix sockets on which a process listens, without connecting, which could start a daemon."""
    table = Path("/proc/net/unix")
    rows = [line.split(maxsplit=7) for line in table.read_text().splitlines()[1:]] if table.exists() else []
    return {_RENAMED.sub(r"\1", row[7]) for row in rows if len(row) == 8 and row[3] == _LISTENING}
