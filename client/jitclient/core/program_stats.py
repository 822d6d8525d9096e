"""Figures of the programs that ended, below the cache directory, from which `jitserver stats` adds up.

Each program that found or made something appends a line of JSON at its exit to the file of the month (in UTC), such as
`stats/2026-11.jsonl`, with one write to a file that was opened for appending. There are no locks: programs that end at
the same time do not mix their lines on a local file system. A line begins with its line break, so that a line that was
cut short spoils no other one; damaged lines are skipped. Both the size of a file and the number of files are bounded.
"""

import contextlib
import os
import time
from collections.abc import Iterator
from typing import Annotated

import msgspec

from jitclient.core.directories import cache_root, private_directory

MAX_FILE_BYTES = 4 << 20
"""Maximum size in bytes of a file, about 20,000 programs: what ends later in that month is not recorded."""

MAX_MONTHS = 24
"""Maximum number of files."""

_MAX_NAME = 1000
_NAMES = "[0-9][0-9][0-9][0-9]-[0-9][0-9].jsonl"

_Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
_Seconds = Annotated[float, msgspec.Meta(gt=-1e9, lt=1e9)]
_Moment = Annotated[float, msgspec.Meta(ge=0, lt=1e11)]


class ProgramStats(msgspec.Struct, omit_defaults=True):
    """Figures of one program, counted in its own process.

    Attributes:
        at: the moment of its exit, in seconds since the epoch.
        script: the path of the script, `-m` and the module, or `notebook` and the like.
        saved: the seconds that found programs and compilations took when they were made, without those of finding them.
        found: how many programs were found on the daemon.
        made: how many programs were not found and made.
        made_seconds: the seconds that this took.
        remade: how many programs were found, but made again because their executables had not been kept.
        remade_seconds: the seconds that this took.
        compilations_found: how many of its own compilations jax found.
        compiled: how many compilations jax made in the process.
        compiled_seconds: the seconds that this took.
    """

    at: _Moment
    script: str
    saved: _Seconds = 0.0
    found: _Count = 0
    made: _Count = 0
    made_seconds: _Seconds = 0.0
    remade: _Count = 0
    remade_seconds: _Seconds = 0.0
    compilations_found: _Count = 0
    compiled: _Count = 0
    compiled_seconds: _Seconds = 0.0


def append(one: ProgramStats) -> None:
    """Record a program that ends.

    Raises:
        OSError: the directory or the file is not writable.
        SettingsError: the directory belongs to another user.
    """
    directory = private_directory(private_directory(cache_root()) / "stats")
    one.script = one.script[:_MAX_NAME].encode(errors="backslashreplace").decode()
    file = directory / time.strftime("%Y-%m.jsonl", time.gmtime(one.at))
    fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(fd).st_size
        if size < MAX_FILE_BYTES:
            os.write(fd, b"\n" + msgspec.json.encode(one))
    finally:
        os.close(fd)
    if not size:
        for old in sorted(directory.glob(_NAMES))[:-MAX_MONTHS]:
            old.unlink(missing_ok=True)


def recorded() -> Iterator[ProgramStats]:
    """Yield the recorded programs, month by month; damaged lines are skipped."""
    for file in sorted((cache_root() / "stats").glob(_NAMES)):
        lines: list[bytes] = []
        # Another process may delete the file, or the directory may not be readable.
        with contextlib.suppress(OSError):
            lines = file.read_bytes().split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError):
                yield msgspec.json.decode(line, type=ProgramStats)


def full_months() -> list[str]:
    """Return the months, such as `2026-11`, whose file reached its maximum size."""
    found = []
    with contextlib.suppress(OSError):
        found = [
            file.stem for file in sorted((cache_root() / "stats").glob(_NAMES)) if file.stat().st_size >= MAX_FILE_BYTES
        ]
    return found
