"""Selection of the units to manage: a user's own, or the system's units for a user."""

import dataclasses
import os
import pwd
import re
from pathlib import Path

from jitclient.core.directories import environment_digest, runtime_directory, user_name
from jitclient.core.settings import settings
from jitclient.errors import JitserverError
from jitclient.wire.address import Address, remote

SUFFIXES = ("socket", "service")
_SYSTEM_UNITS = Path("/etc/systemd/system")


class SystemdError(JitserverError):
    """systemd cannot run the daemon, or cannot be reached; the message contains the reason."""


@dataclasses.dataclass(frozen=True)
class Target:
    """The daemon of one environment for one user."""

    user: str | None = None
    """The user for whom the system's systemd runs the daemon; None: the current user's systemd runs it."""
    digest: str = dataclasses.field(default_factory=environment_digest)
    """The digest that identifies the environment."""

    @property
    def scope(self) -> str:
        """The systemd that manages the units: `user` or `system`."""
        return "system" if self.user else "user"

    @property
    def socket(self) -> str:
        """The name of the socket unit."""
        return f"{self._stem}{self.user or ''}.socket"

    @property
    def service(self) -> str:
        """The name of the service unit."""
        return f"{self._stem}{self.user or ''}.service"

    @property
    def directory(self) -> Path:
        """The directory of the unit files."""
        if self.user:
            return _SYSTEM_UNITS
        # Do not use platformdirs, which returns another directory on systems other than Linux.
        chosen = Path(os.environ.get("XDG_CONFIG_HOME", ""))
        return (chosen if chosen.is_absolute() else Path(os.path.expanduser("~/.config"))) / "systemd" / "user"

    @property
    def files(self) -> dict[str, Path]:
        """The unit files by suffix. All users share the system's unit files."""
        return {suffix: self.directory / f"{self._stem}.{suffix}" for suffix in SUFFIXES}

    @property
    def enabled_link(self) -> Path:
        """The link that `systemctl enable` creates."""
        return self.directory / "sockets.target.wants" / self.socket

    @property
    def address(self) -> Address:
        """The address of the socket."""
        if self.user:
            return Address.parse(f"unix:/run/jitserver/{self.digest}/{self.user}.sock")
        return Address.parse(f"unix:{runtime_directory() / f'{self.digest}.sock'}")

    def others(self) -> list[str]:
        """Return the socket units of other users that use the same files."""
        links = self.enabled_link.parent.glob(f"{self._stem}?*.socket") if self.user else ()
        return sorted(link.name for link in links if link.name != self.socket)

    @property
    def _stem(self) -> str:
        return f"jitserver-{self.digest}@" if self.user else f"jitserver-{self.digest}"


def selected_target(user: str | None) -> Target:
    """Return the target for `--system USER`, or the user's own target if `user` is None.

    Raises:
        SystemdError: there is no such user, or the current user may not manage its units.
    """
    if user is None:
        return Target()
    try:
        found = pwd.getpwnam(user)
    except KeyError:
        raise SystemdError(f"there is no user {user!r} on this machine") from None
    if found.pw_uid == 0:
        raise SystemdError("a daemon runs the code of its callers, so it never runs as root: name another user")
    if not re.fullmatch(r"\w[\w.-]*", user, re.ASCII):
        raise SystemdError(f"{user!r} cannot be part of a unit's name: only letters, digits, '_', '-' and '.' can")
    if os.geteuid() != 0:
        raise SystemdError(f"only root can change the system's units: try `sudo jitserver ... --system {user}`")
    return Target(user)


def installed() -> Target | None:
    """Return the target whose units run this environment's daemon for the current user; None if none are installed."""
    named = settings().address
    if remote(named) is not None:
        return None
    name = user_name()
    for target in (Target(), *([] if name is None else [Target(name)])):
        # Do not use Path: HOME may belong to another user, as after `su` and `sudo`, and may not be readable.
        is_there = os.path.exists(target.files["socket"]) and (
            target.user is None or os.path.islink(target.enabled_link)
        )
        if is_there and (named is None or Address.parse(named) == target.address):
            return target if manager_directory(target).is_dir() else None
    return None


def manager_directory(target: Target) -> Path:
    """Return a directory that exists while the target's systemd is running."""
    return Path("/run/systemd/system") if target.user else runtime_directory().parent / "systemd"
