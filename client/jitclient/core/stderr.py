"""Lines on stderr, which may be closed or full."""

import contextlib
import sys


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
