"""Presence of the package on the disk. A daemon whose package was removed could neither restart nor load more code."""

from pathlib import Path

_PACKAGE = Path(__file__).parents[1] / "__init__.py"
_GONE_SECONDS = 30.0
"""Seconds after which a missing package counts as removed: pip takes its files away for a while to replace them."""


class Installation:
    """Presence of a package, of which a file must exist.

    Attributes:
        path: the file.
    """

    def __init__(self, path: Path = _PACKAGE) -> None:
        self.path = path
        self._missing_since: float | None = None

    def is_gone(self, now: float) -> bool:
        """Return whether the package has been missing for long; called again and again, with the time in seconds."""
        if self.path.exists():
            self._missing_since = None
            return False
        if self._missing_since is None:
            self._missing_since = now
        return now - self._missing_since >= _GONE_SECONDS
