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
    """The result of a check.

    Attributes:
        says: the state that was found.
        do: how to fix it; empty if there is nothing to fix.
    """

    check: str
    level: Level
    says: str
    do: str = ""


@dataclasses.dataclass(frozen=True)
class DaemonState:
    """The daemon as the checks see it.

    Attributes:
        address: of the daemon, or at which it would be started.
        status: of the running daemon, or None.
        seconds: how long it took to answer.
        reason: why there is no status.
        is_broken: whether something is wrong, beyond that no daemon was started.
    """

    address: "Address | SshAddress"
    status: Status | None = None
    seconds: float = 0.0
    reason: str = ""
    is_broken: bool = False

    @property
    def local(self) -> Address:
        """Its address, for checks on its own machine."""
        assert isinstance(self.address, Address)
        return self.address

    @property
    def process(self) -> str:
        """The folder in /proc of the daemon, or of this process, whose limits a new daemon would have."""
        return f"/proc/{self.status.pid if self.status is not None else 'self'}"


def verdict(check: str, fits: bool, says: str, do: str, otherwise: Level = "warning") -> Finding:
    """A finding of level "ok" if it `fits`; otherwise one that says what to do."""
    return Finding(check, "ok", says) if fits else Finding(check, otherwise, says, do)
