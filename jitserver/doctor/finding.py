"""What a check says, and what it looks at."""

import dataclasses
from typing import Literal

from jitclient.wire.address import Address
from jitclient.wire.messages import Status

Level = Literal["ok", "warning", "problem"]


@dataclasses.dataclass(frozen=True)
class Finding:
    """What a check found.

    Attributes:
        says: what is the case.
        do: what to do about it; empty where all is well.
    """

    check: str
    level: Level
    says: str
    do: str = ""


@dataclasses.dataclass(frozen=True)
class DaemonState:
    """What the checks look at.

    Attributes:
        address: of the daemon; where one is started if none runs.
        status: of the daemon that runs, if one does.
        seconds: that it took to answer.
        reason: why none runs, or does not answer.
        is_broken: whether that is more than that none was started.
    """

    address: Address
    status: Status | None = None
    seconds: float = 0.0
    reason: str = ""
    is_broken: bool = False

    @property
    def process(self) -> str:
        """The folder where the kernel tells of the daemon, or of this process, whose limits a daemon would have."""
        return f"/proc/{self.status.pid if self.status is not None else 'self'}"


def verdict(check: str, fits: bool, says: str, do: str, otherwise: Level = "warning") -> Finding:
    """A finding that is well if it `fits`, and otherwise says what to do."""
    return Finding(check, "ok", says) if fits else Finding(check, otherwise, says, do)
