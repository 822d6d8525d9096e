"""The input and the result of a check."""

import dataclasses
from typing import TYPE_CHECKING, Literal

from jitclient.wire.address import Address
from jitclient.wire.introspection import Status

if TYPE_CHECKING:
    from jitclient.wire.ssh import SshAddress

Level = Literal["ok", "warning", "problem"]


@dataclasses.dataclass(frozen=True)
class Finding:
    """The result of a check.

    Attributes:
        check: the name of the check.
        level: the severity.
        says: the state that was found.
        do: the remedy; empty if the level is "ok".
    """

    check: str
    level: Level
    says: str
    do: str = ""


@dataclasses.dataclass(frozen=True)
class DaemonState:
    """The state of the daemon that the checks examine."""

    # The daemon's address, or the address at which a daemon would be started.
    address: "Address | SshAddress"
    status: Status | None = None
    seconds: float = 0.0  # until the daemon answered
    reason: str = ""  # why there is no status
    # Whether the reason is a fault, rather than that no daemon was started.
    is_broken: bool = False
    remedy: str = "jitserver logs; jitserver restart"  # for a fault


def verdict(check: str, fits: bool, says: str, do: str, otherwise: Level = "warning") -> Finding:
    """Return a finding of level "ok" if the state `fits`; otherwise one of level `otherwise` with the remedy `do`."""
    return Finding(check, "ok", says) if fits else Finding(check, otherwise, says, do)
