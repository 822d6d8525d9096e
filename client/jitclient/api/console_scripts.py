"""Console scripts, such as `pytest`: programs that installed packages put beside this environment's interpreter."""

import os
import sys
from collections.abc import Iterator

_MAX_BYTES = 1024


def resolved(name: str) -> str:
    """Return the path of the program that a name stands for: a file of that name, or else a console script.

    Like a shell, look for a script only if the name has no slash. Only scripts that this environment's Python runs
    count: run by path, they find the same `sys.argv[0]`, `sys.path[0]` and `__main__` as in a process of their own.

    Args:
        name: name of a program, as on a command line.

    Returns:
        A path; the name itself if there is no such script.
    """
    is_program = os.path.isfile(name) or os.path.isfile(os.path.join(name, "__main__.py"))
    if is_program or not name or os.sep in name:
        return name
    return next((path for path in _paths(name) if _is_script(path)), name)


def _paths(name: str) -> Iterator[str]:
    """Yield the paths at which a program of that name may be: in this environment first, even if it is not on PATH."""
    for directory in (os.path.dirname(sys.executable), *os.get_exec_path()):
        yield os.path.join(directory, name)


def _is_script(path: str) -> bool:
    """Return whether a file is an executable script in Python, for an interpreter of this environment.

    If the interpreter's path is too long or has spaces, the script begins with `#!/bin/sh`, and the next line, which
    Python reads as a string, names the interpreter.
    """
    if not os.access(path, os.X_OK):
        return False
    try:
        with open(path, "rb") as file:
            first, second = [*file.read(_MAX_BYTES).split(b"\n", 2), b""][:2]
    except OSError:
        return False
    line = second if first == b"#!/bin/sh" and second.startswith(b"'''exec'") else first
    return first.startswith(b"#!") and os.fsencode(_PYTHON) in line


_PYTHON = os.path.join(os.path.dirname(sys.executable), "python")
