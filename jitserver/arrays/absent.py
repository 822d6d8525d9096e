"""What stands where an array is not in memory: a failure, or a place on the disk."""

from typing import Any, Protocol

from jitclient.wire.messages import Failure


class Failed(Exception):  # noqa: N818
    """Stands for the results of a call that failed, as what all that is made of them fails with."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure


class OnDisk(Protocol):
    """The arrays of a session, or of a kept tree, while they are on the disk."""

    def identities(self) -> set[int | str]:
        """What the arrays are known by: their files, and the ids of those that are in memory."""

    def missing_bytes(self) -> int:
        """Bytes of the arrays that are not in memory."""

    def load(self) -> dict[int, Any]:
        """Read the arrays, by handle or by position of the leaf. One that is lost is `Failed`."""

    def discard(self) -> None:
        """Remove them from the disk, unless others need them there."""
