"""Warnings that name the user's line, however deep in ours they are raised."""

import sys
import warnings


def warn(text: str, category: type[Warning]) -> None:
    """Warns at the innermost line that is not jitclient's own."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("jitclient."):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)
