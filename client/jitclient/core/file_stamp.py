"""Stamps of files: values that differ once a file was edited or replaced."""

import os
from os import stat  # programs may patch `os`

FileStamp = tuple[int, int, int, int] | None
"""Stamp of a file, or None for a file that does not exist or cannot be read."""


def file_stamp(path: str | os.PathLike[str]) -> FileStamp:
    """Return the stamp of the file at a path.

    The time of the last change alone is not enough: some installers give all files the same one.

    Example:
        >>> file_stamp("/nowhere")
    """
    try:
        found = stat(path)
    except (OSError, ValueError):
        return None
    return stamp_from(found)


def stamp_from(found: os.stat_result) -> tuple[int, int, int, int]:
    """Return the stamp of a file, given what `os.stat` returns."""
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
