"""Forms of the report at a program's exit, as `--report` and JITSERVER_REPORT name them."""

import os.path

WORDS = ("text", "json")
"""Forms that are printed on stderr."""

_SUFFIXES = (".html", ".json")


def checked(value: str) -> str:
    """Return the form, or the path of the file to write.

    Raises:
        ValueError: the value is neither.
    """
    if value in WORDS or is_file(value):
        return value
    raise ValueError(f"{value!r}: expected 'text', 'json', or a file whose name ends in .html or .json")


def is_file(form: str) -> bool:
    """Return whether the report is written to a file."""
    return os.path.splitext(form)[1] in _SUFFIXES
