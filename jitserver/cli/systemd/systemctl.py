"""Calls of systemctl and journalctl."""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence

from jitserver.cli.systemd.target import SystemdError, Target, manager_directory

_SECONDS = 400.0  # slightly more than the units' own TimeoutStartSec=
_LOG_LINES = 15
_DOWN = ("inactive", "failed")


class UnitError(SystemdError):
    """The command systemctl failed; the message ends with its output and the daemon's log."""


def check_manager(target: Target) -> int:
    """Return the version of the systemd that manages the target's units.

    Raises:
        SystemdError: the machine was not booted with systemd, or no systemd is running for this user.
    """
    if shutil.which("systemctl") is None or not os.path.isdir("/run/systemd/system"):
        raise SystemdError("this machine was not booted with systemd. `jitserver start` starts a daemon without it.")
    directory = manager_directory(target)
    if not directory.is_dir():
        linger = f"sudo loginctl enable-linger {os.environ.get('USER', '')}".rstrip()
        raise SystemdError(
            f"no systemd runs for this user: there is no {directory}. Log in again, or keep one running: `{linger}`"
        )
    found = re.match(r"systemd (\d+)", _run(target, ["systemctl", "--version"]).stdout)
    return int(found[1]) if found else 0


def systemctl(target: Target, *arguments: str) -> str:
    """Run systemctl for the target's systemd, and return its output.

    Raises:
        SystemdError: the command failed for want of privileges.
        UnitError: the command failed for another reason.
    """
    command = ["systemctl", f"--{target.scope}", "--no-pager", "--no-ask-password", *arguments]
    done = _run(target, command)
    if done.returncode == 0:
        return done.stdout
    said = (done.stderr or done.stdout).strip()
    if target.user and os.geteuid() != 0:
        raise SystemdError(f"the system's systemd runs this daemon: try `sudo systemctl {' '.join(arguments)}`\n{said}")
    raise UnitError(f"`{' '.join(command)}` failed: {said}")


def start(target: Target, verb: str) -> None:
    """Start the socket, then start or restart the service. Afterwards the daemon is serving.

    Raises:
        UnitError: the command failed; the message contains the daemon's log.
    """
    systemctl(target, "start", target.socket)
    try:
        systemctl(target, verb, target.service)
    except UnitError as error:
        raise UnitError(f"{error}\n" + "\n".join(journal(target, _LOG_LINES))) from None


def stop(target: Target, waits: bool = True) -> None:
    """Stop the service and its socket, which would start the service again; perhaps without waiting for that."""
    systemctl(target, "stop", *([] if waits else ["--no-block"]), target.socket, target.service)


def is_active(target: Target, *units: str) -> bool:
    """Return whether one of the units is running, starting, or waiting for a restart."""
    return any(state not in _DOWN for state in _show(target, "ActiveState", units or (target.socket, target.service)))


def is_known(target: Target) -> bool:
    """Return whether systemd has read the target's units."""
    return len(_show(target, "FragmentPath", (target.socket, target.service))) == 2


def waits(target: Target) -> bool:
    """Return whether the socket is open and the daemon is not running, so that connecting would start the daemon."""
    socket, service = _show(target, "ActiveState", (target.socket, target.service))  # one process for both
    return socket not in _DOWN and service in _DOWN


def main_pid(target: Target) -> int | None:
    """Return the process id of the daemon, or None if it is not running."""
    return int(_show(target, "MainPID", (target.service,))[0]) or None


def journal(target: Target, lines: int) -> list[str]:
    """Return the last log lines of the daemon, and of systemd about the daemon."""
    unit = ["--unit"] if target.user else ["--user", "--unit"]
    done = _run(target, ["journalctl", *unit, target.service, "--lines", str(lines), "--no-pager", "--quiet"])
    if done.returncode != 0:
        raise UnitError(f"journalctl failed: {done.stderr.strip()}")
    return done.stdout.splitlines()


def _show(target: Target, name: str, units: Sequence[str]) -> list[str]:
    return systemctl(target, "show", "--property", name, "--value", *units).split()


def _run(target: Target, command: list[str]) -> subprocess.CompletedProcess[str]:
    # After `su` this environment variable is missing; without it, systemctl and journalctl do not find the user's
    # manager.
    found = {} if target.user else {"XDG_RUNTIME_DIR": str(manager_directory(target).parent)}
    try:
        return subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            env={**os.environ, **found},
            stdin=subprocess.DEVNULL,
            timeout=_SECONDS,
        )
    except FileNotFoundError:
        raise SystemdError(f"{command[0]} is not installed on this machine") from None
    except subprocess.TimeoutExpired:
        raise UnitError(f"`{' '.join(command)}` did not exit within {_SECONDS:.0f} s") from None
