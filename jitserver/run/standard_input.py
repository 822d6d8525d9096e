"""File behind a run's standard input, which notes whether anything was read."""

import io
from typing import Any


class StandardInput(io.FileIO):
    """File that notes its first read.

    Attributes:
        was_read: whether one of these files was read.
    """

    was_read = False

    def readinto(self, buffer: Any) -> Any:
        """Read into a buffer."""
        StandardInput.was_read = True
        return super().readinto(buffer)

    def readall(self) -> Any:
        """Read all that is left."""
        StandardInput.was_read = True
        return super().readall()

    def read(self, size: int | None = -1) -> Any:
        """Read at most some bytes."""
        StandardInput.was_read = True
        return super().read(size)
