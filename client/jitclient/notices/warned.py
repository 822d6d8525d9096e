"""Warnings with the location of the user's line."""

import sys
import warnings


def warn(text: str, category: type[Warning]) -> None:
    """Warns at the innermost line that is not in jitclient."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("jitclient."):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)
