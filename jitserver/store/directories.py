"""Locations of the cache: a directory for each user, with a subdirectory for each environment.

Does not depend on jax.
"""

import contextlib
import os
from pathlib import Path

import platformdirs

from jitclient.core.settings import settings
from jitclient.wire.address import environment_digest, private_directory, runtime_directory, user_name

# The directory that `CacheDirectory=` selects in the system units.
_SYSTEM_ROOT = Path("/var/cache/jitserver")


def environment_directory() -> Path:
    """Return the cache directory of this environment, created if necessary. Other environments cannot use its programs.

    Raises:
        SettingsError: a directory belongs to a different user.
        OSError: the directory cannot be created.
    """
    return private_directory(private_directory(cache_root()) / environment_digest())


def xla_cache_directory(directory: Path) -> Path:
    """Return the directory of JAX's own cache, which finds compilations by program text.

    The disk tier limits its size.
    """
    return directory / "texts"


def existing_directories() -> list[Path]:
    """Return the existing cache directories of this environment, the user's own first, then the system daemon's."""
    name = user_name()
    roots = [cache_root(), *([] if name is None else [_SYSTEM_ROOT / name])]
    paths = [directory / environment_digest() for directory in roots]
    return [path for path in paths if os.path.isdir(path) and os.access(path, os.X_OK)]


def trim(path: Path, max_bytes: int) -> int:
    """Delete the oldest files of a directory until the rest takes at most `max_bytes` bytes.

    Returns:
        The number of bytes freed.
    """
    freed = 0
    with contextlib.suppress(OSError):
        stats = [(entry.path, entry.stat()) for entry in os.scandir(path) if entry.is_file()]
        excess = sum(stat.st_size for _, stat in stats) - max_bytes
        for file, stat in sorted(stats, key=lambda pair: pair[1].st_mtime):
            if freed >= excess:
                break
            os.unlink(file)
            freed += stat.st_size
    return freed


def cache_root() -> Path:
    """Return the directory that contains the cache directories of all environments."""
    given = settings().cache_dir or os.environ.get("CACHE_DIRECTORY")  # systemd sets CACHE_DIRECTORY
    try:
        return Path(given or platformdirs.user_cache_dir("jitserver", appauthor=False))
    # This user has no home directory.
    except RuntimeError:
        return runtime_directory() / "cache"
