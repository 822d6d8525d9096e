"""Folders, sockets, locks and logs: whose they are, who may use them, and what was left behind."""

import os
import re
import stat
from pathlib import Path

from jitclient.notices.labels import size
from jitclient.sessions import launch
from jitclient.wire.address import runtime_folder
from jitserver.doctor.finding import DaemonState, Finding, verdict

_LISTENING = "00010000"  # the kernel's flag in /proc/net/unix
_RENAMED = re.compile(
    r"\.([^/]+\.sock)\.\d+$"
)  # `Address.listen` makes a socket under such a name, which the kernel keeps


def folder_of_sockets(state: DaemonState) -> Finding:
    """Nobody else may be able to put a socket where clients look for the daemon's."""
    folder = state.address.path.parent
    if not folder.exists():
        return Finding("socket folder", "ok", f"{folder}: made with the first daemon")
    return of_folder("socket folder", folder)


def socket(state: DaemonState) -> Finding:
    """It is for its user alone, and somebody answers there."""
    path = state.address.path
    if not path.exists():
        return Finding("socket", "ok", f"{path}: none, as no daemon runs")
    found = path.stat()
    says = f"{path}: {_owner(found.st_uid)}, {stat.filemode(found.st_mode)}"
    if not stat.S_ISSOCK(found.st_mode):
        return Finding("socket", "problem", f"{says}, is no socket", f"rm {path}")
    if found.st_uid not in (os.getuid(), 0) or found.st_mode & 0o077:
        return Finding("socket", "problem", f"{says}: others can use it", f"jitserver stop; rm {path}")
    if state.status is None and str(path) not in _listening():
        return Finding(
            "socket", "warning", f"{says}: a daemon that died left it", "nothing: the next one takes it over"
        )
    return Finding("socket", "ok", says)


def lock(state: DaemonState) -> Finding:
    """Whoever holds it must answer."""
    path = state.address.lock_path
    if not path.exists():
        return Finding("lock", "ok", "no daemon has locked this address")
    pid = path.read_text().strip() or "unknown"
    if not state.address.is_held():
        return Finding("lock", "ok", f"{path}: held by nobody")
    return verdict(
        "lock",
        state.status is not None,
        f"{path}: held by pid {pid}" + ("" if state.status is not None else ", which does not answer"),
        f"it starts, or it drains; if it goes on for minutes: jitserver logs, then kill {pid}",
        "problem",
    )


def left_behind(state: DaemonState) -> Finding:
    """Sockets where nobody listens: of environments that have gone, or daemons that died."""
    folder, heard = runtime_folder(), _listening()
    sockets = sorted(path for path in folder.iterdir() if path.is_socket())
    dead = [path for path in sockets if str(path) not in heard and path != state.address.path]
    if not dead:
        return Finding("left behind", "ok", f"nothing in {folder}")
    names = " ".join(map(str, dead))
    return Finding("left behind", "warning", f"{len(dead)} sockets where nobody listens", f"rm {names}")


def log(state: DaemonState) -> Finding:
    """A daemon in the background must be able to write it."""
    path = launch.log_path(state.address)
    if not os.access(path.parent, os.W_OK):
        return Finding("log", "problem", f"{path.parent} cannot be written", "make it writable: no daemon starts")
    if not path.exists():
        return Finding("log", "ok", f"{path}: none yet")
    found = path.stat()
    says = f"{path}: {_owner(found.st_uid)}, {size(found.st_size)}"
    return verdict("log", os.access(path, os.W_OK), says, f"chmod u+w {path}, or rm it", "problem")


def of_folder(check: str, folder: Path) -> Finding:
    """Whether it is this user's to write, and nobody else's."""
    found = folder.stat()
    says = f"{folder}: {_owner(found.st_uid)}, {stat.filemode(found.st_mode)}"
    if found.st_uid not in (os.getuid(), 0):
        return Finding(check, "problem", f"{says}: it is somebody else's", f"chown or remove {folder}")
    if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
        return Finding(check, "problem", f"{says}: others can write there", f"chmod 700 {folder}")
    return verdict(check, os.access(folder, os.W_OK), says, f"make it writable for you: {folder}", "problem")


def _owner(uid: int) -> str:
    return {0: "root's", os.getuid(): "yours"}.get(uid, f"of uid {uid}")


def _listening() -> set[str]:
    """The paths of Unix sockets where somebody listens: to connect there could start a daemon."""
    table = Path("/proc/net/unix")
    rows = [line.split(maxsplit=7) for line in table.read_text().splitlines()[1:]] if table.exists() else []
    return {_RENAMED.sub(r"\1", row[7]) for row in rows if len(row) == 8 and row[3] == _LISTENING}
