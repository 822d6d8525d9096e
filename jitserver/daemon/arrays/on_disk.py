"""Interface of arrays that are on disk."""

from typing import Any, Protocol

from jitserver.programs.devices.memories import Bytes


class OnDisk(Protocol):
    """The arrays of a session or of a named tree while they are on disk."""

    def identities(self) -> set[int | str]:
        """Return identifiers of the arrays: file names, and the `id` of each array that is also in memory."""

    def missing_bytes(self) -> Bytes:
        """Return the bytes that the arrays that are not loaded will take, by memory."""

    def load(self) -> dict[int, Any]:
        """Read the arrays, by handle or by position of the leaf. A lost array is `Failed`."""

    def discard(self) -> None:
        """Remove the arrays from disk, except those that other sessions or trees need there."""
