"""Forms of what a program reports, as `--report` and JITSERVER_REPORT name them."""

import os.path

_LINES = ("off", "lines")
_PRINTED = ("text", "json")
_SUFFIXES = (".html", ".json")


def checked(value: str) -> str:
    """Return the form, or the path of the file to write.

    Raises:
        ValueError: the value is neither.
    """
    if value in _LINES or is_at_exit(value):
        return value
    raise ValueError(f"{value!r}: expected 'off', 'lines', 'text', 'json', or a file whose name ends in .html or .json")


def is_at_exit(form: str) -> bool:
    """Return whether a report is made at the exit: it is printed on stderr, or written to a file."""
    return form in _PRINTED or is_file(form)


def is_file(form: str) -> bool:
    """Return whether the report is written to a file."""
    return os.path.splitext(form)[1] in _SUFFIXES
