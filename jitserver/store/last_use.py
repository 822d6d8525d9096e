"""The programs and compilations that each script used when it ran last, so that they can be given to other machines."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from jitclient.core.digests import digest
from jitclient.core.directories import compilations_directory, trim
from jitclient.wire.encoding import encoded
from jitclient.wire.messages import Message
from jitserver.store import checked_files
from jitserver.store.checked_files import Corrupt, unpacked

_FOLDER = "last-use"
_MAX_BYTES = 16 << 20


class LastUse(Message):
    """Call keys of programs, and names of files in the directory of compilations."""

    script: str
    programs: tuple[str, ...]
    compilations: tuple[str, ...]


def note(directory: Path, script: str, programs: Iterable[str], since: float) -> None:
    """Note what a script has used, instead of its last use.

    Args:
        directory: the cache directory of the environment.
        script: its name, as `process_watch.script_of` returns it.
        programs: the call keys of its programs.
        since: when its process was started, in seconds since the epoch. A process touches the compilations that it
            uses, so those of others at the same time count, too.

    Raises:
        OSError: the note cannot be written.
    """
    compilations = []
    with contextlib.suppress(FileNotFoundError):
        entries = os.scandir(compilations_directory(directory))
        compilations = [entry.name for entry in entries if entry.stat().st_mtime >= since]
    used = LastUse(script, tuple(sorted(programs)), tuple(sorted(compilations)))
    checked_files.write(_path(directory, script), [encoded(used)])
    trim(directory / _FOLDER, _MAX_BYTES)


def of_script(directory: Path, script: str) -> LastUse | None:
    """Return what a script used last; None if it is unknown."""
    try:
        return unpacked(checked_files.read(_path(directory, script)), LastUse)
    except (OSError, Corrupt):
        return None


def _path(directory: Path, script: str) -> Path:
    return directory / _FOLDER / digest(script.encode()).hex()
