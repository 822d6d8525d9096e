"""Notices to users: lines on stderr, and warnings that never raise."""

import contextlib
import sys
import warnings


def say(text: str) -> None:
    """Print a line on stderr, if that can be."""
    if sys.stderr is not None:
        with contextlib.suppress(Exception):  # it may be an object of the program's
            print(f"jitserver: {text}", file=sys.stderr, flush=True)


def is_terminal() -> bool:
    """Whether stderr is a terminal."""
    try:
        return sys.stderr is not None and sys.stderr.isatty()
    except ValueError:  # it was closed
        return False


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
