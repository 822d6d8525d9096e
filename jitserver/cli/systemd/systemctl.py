"""Calls of systemctl and journalctl."""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence

from jitserver.cli.systemd.target import SystemdError, Target, manager_folder

_SECONDS = 400.0  # a little more than the units' own TimeoutStartSec=
_LOG_LINES = 15
_DOWN = ("inactive", "failed")


class UnitError(SystemdError):
    """The command systemctl failed; the message ends with what it and the daemon wrote."""


def check_manager(target: Target) -> int:
    """The version of the systemd that manages the target's units, if the machine was booted with one."""
    if shutil.which("systemctl") is None or not os.path.isdir("/run/systemd/system"):
        raise SystemdError("this machine was not booted with systemd; `jitserver start` runs a daemon without it")
    folder = manager_folder(target)
    if not folder.is_dir():
        linger = f"sudo loginctl enable-linger {os.environ.get('USER', '')}".rstrip()
        raise SystemdError(
            f"no systemd runs for this user: there is no {folder}. Log in again, or keep one running: `{linger}`"
        )
    found = re.match(r"systemd (\d+)", _run(target, ["systemctl", "--version"]).stdout)
    return int(found[1]) if found else 0


def systemctl(target: Target, *arguments: str) -> str:
    """Runs systemctl for the target's systemd; returns its output."""
    command = ["systemctl", f"--{target.scope}", "--no-pager", "--no-ask-password", *arguments]
    done = _run(target, command)
    if done.returncode == 0:
        return done.stdout
    said = (done.stderr or done.stdout).strip()
    if target.user and os.geteuid() != 0:
        raise SystemdError(f"the system's systemd runs this daemon: try `sudo systemctl {' '.join(arguments)}`\n{said}")
    raise UnitError(f"`{' '.join(command)}` failed: {said}")


def start(target: Target, verb: str) -> None:
    """Starts the socket, then starts or restarts the service. Afterwards the daemon serves; an error has its log."""
    systemctl(target, "start", target.socket)
    try:
        systemctl(target, verb, target.service)
    except UnitError as error:
        raise UnitError(f"{error}\n" + "\n".join(journal(target, _LOG_LINES))) from None


def stop(target: Target) -> None:
    """Stops the service and its socket, which would start the service again."""
    systemctl(target, "stop", target.socket, target.service)


def is_active(target: Target, *units: str) -> bool:
    """Whether one of the units runs, starts, or waits for a restart."""
    return any(state not in _DOWN for state in _show(target, "ActiveState", units or (target.socket, target.service)))


def is_known(target: Target) -> bool:
    """Whether systemd has read the target's units."""
    return len(_show(target, "FragmentPath", (target.socket, target.service))) == 2


def waits(target: Target) -> bool:
    """Whether its socket is open and its daemon does not run: connecting would start the daemon."""
    socket, service = _show(target, "ActiveState", (target.socket, target.service))  # one process for both
    return socket not in _DOWN and service in _DOWN


def main_pid(target: Target) -> int | None:
    """The process id of the daemon, if it runs."""
    return int(_show(target, "MainPID", (target.service,))[0]) or None


def journal(target: Target, lines: int) -> list[str]:
    """The last log lines of the daemon, with those of systemd about it."""
    unit = ["--unit"] if target.user else ["--user", "--unit"]
    done = _run(target, ["journalctl", *unit, target.service, "--lines", str(lines), "--no-pager", "--quiet"])
    if done.returncode != 0:
        raise UnitError(f"journalctl failed: {done.stderr.strip()}")
    return done.stdout.splitlines()


def _show(target: Target, name: str, units: Sequence[str]) -> list[str]:
    return systemctl(target, "show", "--property", name, "--value", *units).split()


def _run(target: Target, command: list[str]) -> subprocess.CompletedProcess[str]:
    # After `su` this variable is missing, and systemctl and journalctl do not find the user's manager.
    found = {} if target.user else {"XDG_RUNTIME_DIR": str(manager_folder(target).parent)}
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
        raise SystemdError(f"there is no {command[0]} on this machine") from None
    except subprocess.TimeoutExpired:
        raise UnitError(f"`{' '.join(command)}` did not end within {_SECONDS:.0f} s") from None
