"""Where the cache is: a folder of the user's own, with a part for each environment. Knows nothing of jax."""

import contextlib
import os
from pathlib import Path

import platformdirs

from jitclient.core.settings import settings
from jitclient.wire.address import environment_digest, private_folder, runtime_folder, user_name

_OF_SYSTEM = Path("/var/cache/jitserver")  # what CacheDirectory= of the system's units means


def part() -> Path:
    """The part of this environment, made if need be: its programs are of use to no other.

    Raises:
        SettingsError: a folder belongs to somebody else.
        OSError: it cannot be made.
    """
    return private_folder(private_folder(base()) / environment_digest())


def texts(part: Path) -> Path:
    """The folder of JAX's own cache in a part: of compilations, by program text. The store limits it."""
    return part / "texts"


def parts_there() -> list[Path]:
    """The parts of this environment that exist, the user's own first: the system's daemon keeps another."""
    name = user_name()
    bases = [base(), *([] if name is None else [_OF_SYSTEM / name])]
    parts = [folder / environment_digest() for folder in bases]
    return [path for path in parts if os.path.isdir(path) and os.access(path, os.X_OK)]


def trim(path: Path, most_bytes: int) -> int:
    """Deletes the files of a folder that were written longest ago, until the rest takes no more than so many bytes;
    returns the bytes that were freed.
    """
    freed = 0
    with contextlib.suppress(OSError):
        stats = [(entry.path, entry.stat()) for entry in os.scandir(path) if entry.is_file()]
        excess = sum(stat.st_size for _, stat in stats) - most_bytes
        for file, stat in sorted(stats, key=lambda pair: pair[1].st_mtime):
            if freed >= excess:
                break
            os.unlink(file)
            freed += stat.st_size
    return freed


def base() -> Path:
    """Where the parts of all environments are."""
    given = settings().cache_dir or os.environ.get("CACHE_DIRECTORY")  # the latter is systemd's
    try:
        return Path(given or platformdirs.user_cache_dir("jitserver", appauthor=False))
    except RuntimeError:  # this user has no home
        return runtime_folder() / "cache"
