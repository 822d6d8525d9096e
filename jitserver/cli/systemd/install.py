"""Installation and removal of unit files."""

import contextlib
import dataclasses
import os
import pwd
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

from jitserver.cli.systemd import render, systemctl
from jitserver.cli.systemd.target import SystemdError, Target

_PROBE = "import importlib.util, jitserver, sys; sys.exit(importlib.util.find_spec('jax') is None)"


@dataclasses.dataclass(frozen=True)
class Done:
    """The result of an installation or a removal.

    Attributes:
        result: the action that was taken.
        target: the daemon whose units were managed.
        files: the unit files of the target, even if they were removed.
        kept_for: units of other users that use the same files.
    """

    result: Literal["installed", "updated", "unchanged", "uninstalled", "nothing to uninstall"]
    target: Target
    files: tuple[Path, ...]
    kept_for: tuple[str, ...] = ()


def plan(target: Target) -> dict[Path, str]:
    """Return the files that `install` would write.

    Raises:
        SystemdError: systemd is not running, or cannot run a daemon of this environment.
    """
    version = systemctl.check_manager(target)
    _probe(target)
    return _files(target, version)


def preview(target: Target) -> tuple[dict[Path, str], str]:
    """Return the files that `install` would write, and why it cannot write them here; empty if it can.

    Where no systemd runs, the files are those for the newest version of systemd.
    """
    try:
        return plan(target), ""
    except SystemdError as error:
        return _files(target, sys.maxsize), str(error)


def _files(target: Target, version: int) -> dict[Path, str]:
    texts = render.units(target, version)
    return {path: texts[suffix] for suffix, path in target.files.items()}


def install(target: Target, planned: dict[Path, str]) -> Done:
    """Write the planned files, and enable and start the socket. Calling this again changes nothing.

    Raises:
        SystemdError: systemd does not read units from the target's directory, or a command failed.
    """
    was_there = all(path.exists() for path in planned) and target.enabled_link.is_symlink()
    changed = [path for path, text in planned.items() if not path.exists() or path.read_text() != text]
    for path in changed:
        _write(path, planned[path])
    systemctl.systemctl(target, "daemon-reload")
    if not systemctl.is_known(target):
        for path in changed:
            path.unlink()
        raise SystemdError(f"systemd does not read units from {target.directory}: its XDG_CONFIG_HOME differs")
    if changed and was_there:
        # A socket unit must be restarted to apply a new description, which also stops the service.
        systemctl.stop(target)
    systemctl.systemctl(target, "enable", target.socket)
    systemctl.systemctl(target, "start", target.socket)
    if not was_there:
        return Done("installed", target, tuple(planned))
    return Done("updated" if changed else "unchanged", target, tuple(planned))


def uninstall(target: Target) -> Done:
    """Stop and disable the units, and remove their files unless other users' units need them."""
    systemctl.check_manager(target)
    files = tuple(target.files.values())
    if not target.enabled_link.is_symlink() and (target.others() or not any(path.exists() for path in files)):
        return Done("nothing to uninstall", target, files)
    if systemctl.is_active(target):  # systemd may be unable to read an inactive unit
        systemctl.stop(target)
    systemctl.systemctl(target, "disable", target.socket)
    kept_for = tuple(target.others())
    if not kept_for:
        for path in files:
            path.unlink(missing_ok=True)
    systemctl.systemctl(target, "daemon-reload")
    if target.user:
        with contextlib.suppress(OSError):  # the directory contains sockets of other users
            target.address.path.parent.rmdir()
    return Done("uninstalled", target, files, kept_for)


def _write(path: Path, text: str) -> None:
    """Write a file atomically."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}")
    fresh.write_text(text, encoding="utf-8")
    fresh.chmod(0o644)
    fresh.replace(path)


def _probe(target: Target) -> None:
    """Check that the daemon's user can run the daemon; otherwise, systemd would retry for ever.

    Raises:
        SystemdError: the user cannot run Python or jitserver, or the environment lacks jax.
    """
    if not render.is_fit(sys.executable):
        raise SystemdError(f"systemd cannot run a program whose path has quotes or backslashes: {sys.executable}")
    as_user: dict[str, Any] = {}
    if target.user:
        found = pwd.getpwnam(target.user)
        groups = os.getgrouplist(target.user, found.pw_gid)
        as_user = {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": groups}
    who, command = target.user or "this user", [sys.executable, "-P", "-c", _PROBE]
    env = render.process_settings()
    try:
        done = subprocess.run(command, cwd="/", env=env, capture_output=True, text=True, check=False, **as_user)
    except OSError as error:
        raise SystemdError(f"{who} cannot run {sys.executable}: {error.strerror}") from None
    if done.stderr:
        raise SystemdError(f"{who} cannot run jitserver with {sys.executable}: {done.stderr.splitlines()[-1]}")
    if done.returncode:
        raise SystemdError(
            f"{sys.executable} has no jax: run `pip install 'jitserver[server]'` in that environment first"
        )
