"""Stands for an array that is not in memory: it failed, or is on the disk."""

from typing import Any, Protocol

from jitclient.wire.messages import Failure


class Failed(Exception):  # noqa: N818
    """Stands for the results of a failed call. Calls that use them fail with the same failure."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure


class OnDisk(Protocol):
    """The arrays of a session or of a named tree while they are on the disk."""

    def identities(self) -> set[int | str]:
        """Identifies the arrays: by their files, and by `id` if they are in memory."""

    def missing_bytes(self) -> int:
        """Bytes of the arrays that are not in memory."""

    def load(self) -> dict[int, Any]:
        """Read the arrays, by handle or by position of the leaf. A lost one is `Failed`."""

    def discard(self) -> None:
        """Remove them from the disk, unless others need them there."""
