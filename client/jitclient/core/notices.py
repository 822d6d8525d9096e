"""Notices to users: lines on stderr, and warnings that never raise."""

import contextlib
import sys
import warnings


def print_notice(text: str) -> None:
    """Print a line on stderr that says whose it is, if stderr is usable."""
    print_line(f"jitserver: {text}")


def print_line(text: str) -> None:
    """Print a line on stderr, if stderr is usable."""
    if sys.stderr is not None:
        # The program may have replaced stderr with an object of its own, which may raise any exception.
        with contextlib.suppress(Exception):
            print(text, file=sys.stderr, flush=True)


def is_terminal() -> bool:
    """Return whether stderr is a terminal."""
    try:
        return sys.stderr is not None and sys.stderr.isatty()
    # Closed, or an object of the program's own, which may raise any exception.
    except Exception:
        return False


def warn(text: str) -> None:
    """Warn the user of a condition that jitserver noticed, without ever raising.

    If the program turns warnings into errors, print the text on stderr instead: a notice of jitserver must not become
    an error of the program.
    """
    try:
        repeat(text, RuntimeWarning)
    except Exception:
        # Raised by the warning itself, or by the program's replacement of `warnings.showwarning`.
        print_notice(text)


def repeat(text: str, category: type[Warning]) -> None:
    """Repeat a warning that JAX would issue here, attributed to the innermost line outside jitclient."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("jitclient."):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)
