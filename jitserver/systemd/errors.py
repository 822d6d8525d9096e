"""What can stand between the user and a daemon that systemd runs.

SystemdError (JitserverError)
├── NoSystemd            this machine was not booted with systemd, or has no systemctl
├── NoUserManager        no systemd manager runs for this user
├── NotPermitted         only root may do this
├── UnfitUser            there is no such user, or none that a daemon may run as
├── UnfitEnvironment     a daemon of this Python environment could not serve where systemd would listen
└── UnitFailed           systemctl did not do what was asked
"""

from jitclient.errors import JitserverError


class SystemdError(JitserverError):
    """The root of all of them."""


class NoSystemd(SystemdError):  # noqa: N818
    """The machine was not booted with systemd, or has no systemctl."""


class NoUserManager(SystemdError):  # noqa: N818
    """No systemd manager runs for this user."""


class NotPermitted(SystemdError):  # noqa: N818
    """Only root may do this."""


class UnfitUser(SystemdError):  # noqa: N818
    """There is no such user, or none that a daemon may run as."""


class UnfitEnvironment(SystemdError):  # noqa: N818
    """A daemon of this Python environment could not serve where systemd would listen."""


class UnitFailed(SystemdError):  # noqa: N818
    """The command systemctl did not do what was asked; the message ends with what it and the daemon said."""
