"""Warnings with the location of the user's line."""

import sys
import warnings

from jitclient.core.stderr import say


def warn(text: str) -> None:
    """Warn of something that jitserver noticed.

    It never raises: where the program makes warnings errors, the text is printed on stderr, because a notice of ours
    must not become an error of the program's.
    """
    try:
        repeat(text, RuntimeWarning)
    except Exception:  # the warning itself, or what the program has put in the place of `warnings.showwarning`
        say(text)


def repeat(text: str, category: type[Warning]) -> None:
    """Warn of something that JAX would warn of here, at the innermost line that is not in jitclient."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("jitclient."):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)
