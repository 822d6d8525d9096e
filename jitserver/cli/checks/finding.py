"""The input and the result of a check."""

import dataclasses
from typing import TYPE_CHECKING, Literal

from jitclient.wire.address import Address
from jitclient.wire.messages import Status

if TYPE_CHECKING:
    from jitclient.wire.ssh import SshAddress

Level = Literal["ok", "warning", "problem"]


@dataclasses.dataclass(frozen=True)
class Finding:
    """The result of a check: the state that was found, and how to fix it, unless it is ok."""

    check: str
    level: Level
    says: str
    do: str = ""


@dataclasses.dataclass(frozen=True)
class DaemonState:
    """The daemon as the checks see it."""

    address: "Address | SshAddress"  # of the daemon, or at which it would be started
    status: Status | None = None
    seconds: float = 0.0  # until it answered
    reason: str = ""  # why there is no status
    is_broken: bool = False  # beyond that no daemon was started

    @property
    def process(self) -> str:
        """The folder in /proc of the daemon, or of this process, whose limits a new daemon would have."""
        return f"/proc/{self.status.pid if self.status is not None else 'self'}"


def verdict(check: str, fits: bool, says: str, do: str, otherwise: Level = "warning") -> Finding:
    """A finding of level "ok" if it `fits`; otherwise one that says what to do."""
    return Finding(check, "ok", says) if fits else Finding(check, otherwise, says, do)
