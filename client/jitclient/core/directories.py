"""Directories of the user: sockets, locks and logs, and the cache, with a part for each environment.

Does not depend on jax.
"""

import contextlib
import os
import pwd
import stat
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from os import scandir, unlink  # the program may patch `os`
from pathlib import Path
from typing import TYPE_CHECKING

from jitclient.core.digests import digest
from jitclient.errors import SettingsError

if TYPE_CHECKING:
    from jitclient.core.settings import Settings

PROCESS_SETTINGS = (
    "CUDA_DEVICE_ORDER",
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "HIP_VISIBLE_DEVICES",
    "JAX_CUDA_VISIBLE_DEVICES",
    "JAX_NUM_CPU_DEVICES",
    "JAX_ONEAPI_VISIBLE_DEVICES",
    "JAX_PLATFORMS",
    "JAX_PLATFORM_NAME",
    "JAX_ROCM_VISIBLE_DEVICES",
    "LIBTPU_INIT_ARGS",
    "NVIDIA_TF32_OVERRIDE",
    "PJRT_NAMES_AND_LIBRARY_PATHS",
    "ROCR_VISIBLE_DEVICES",
    "TF_GPU_ALLOCATOR",
    "TPU_VISIBLE_CHIPS",
    "TPU_VISIBLE_DEVICES",
    "XLA_CLIENT_MEM_FRACTION",
    "XLA_FLAGS",
    "XLA_PYTHON_CLIENT_ALLOCATOR",
    "XLA_PYTHON_CLIENT_MEM_FRACTION",
    "XLA_PYTHON_CLIENT_PREALLOCATE",
)
"""Environment variables that apply to a whole process: each combination of their values has its own daemon."""

OF_VALUES = ("LIBTPU_INIT_ARGS", "NVIDIA_TF32_OVERRIDE", "XLA_FLAGS")
"""PROCESS_SETTINGS that may change the values that programs compute."""

DAEMON_DEFAULTS = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
"""Variables that a daemon sets unless the user did. These values select the same daemon as no value."""

HOST_DEVICES_FLAG = "--xla_force_host_platform_device_count"
"""Flag in XLA_FLAGS: the number of CPU devices."""

_SUN_PATH = 108 if sys.platform == "linux" else 104
# Excludes the terminating zero byte, and the dot and process id that `Address.listen` adds to the name.
MAX_SOCKET_BYTES = _SUN_PATH - len("\0..4194304")
"""Maximum length in bytes of the path of a daemon's socket."""

_MAX_DIRECTORY_BYTES = MAX_SOCKET_BYTES - len("/0123456789ab.sock")

ENVIRONMENT_FILE = "environment"
"""File in the cache directory of an environment: the path of the environment."""

# The directory that `CacheDirectory=` selects in the system units.
_SYSTEM_ROOT = Path("/var/cache/jitserver")


def environment_digest(environment: Mapping[str, str] = os.environ, prefix: str = sys.prefix) -> str:
    """Return a digest of this Python environment and of the PROCESS_SETTINGS, which together select a daemon."""
    made = [*process_settings(environment).items()]
    return digest(repr((os.path.realpath(prefix), made)).encode(), 6).hex()


def process_settings(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the PROCESS_SETTINGS that are set, without those that have the value of a daemon's default."""
    given = {name: environment.get(name) for name in PROCESS_SETTINGS}
    # Libraries such as numpyro set the default, a single CPU device, and put it before the user's flags.
    flags = (given["XLA_FLAGS"] or "").split()
    last = next((flag for flag in reversed(flags) if flag.startswith(HOST_DEVICES_FLAG)), "")
    count = [last] if last and last != f"{HOST_DEVICES_FLAG}=1" else []
    given["XLA_FLAGS"] = " ".join([*(flag for flag in flags if not flag.startswith(HOST_DEVICES_FLAG)), *count])
    defaults = DAEMON_DEFAULTS if count else {**DAEMON_DEFAULTS, "JAX_NUM_CPU_DEVICES": "1"}
    return {name: value for name, value in given.items() if value and value != defaults.get(name)}


def user_name() -> str | None:
    """Return the user's name; None in a container that does not know the user id."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return None


def environment_directory() -> Path:
    """Return the cache directory of this environment, created if necessary. Other environments cannot use its programs.

    Raises:
        SettingsError: a directory belongs to a different user.
        OSError: the directory cannot be created.
    """
    directory = private_directory(private_directory(cache_root()) / environment_digest())
    record = directory / ENVIRONMENT_FILE
    # On a full or read-only disk, `jitserver purge` does not know the environment.
    with contextlib.suppress(OSError):
        if not record.exists():
            record.touch(0o600)
            record.write_bytes(os.fsencode(os.path.realpath(sys.prefix)))
    return directory


def environment_of(directory: Path) -> Path | None:
    """Return the directory of the Python environment to which a cache directory belongs; None if it is unknown."""
    try:
        return Path(os.fsdecode((directory / ENVIRONMENT_FILE).read_bytes()))
    except OSError:
        return None


def compilations_directory(directory: Path) -> Path:
    """Return the directory of compilations by program text; the disk tier limits its size."""
    return directory / "compilations"


def tuning_directory(directory: Path) -> Path:
    """Return the directory of what XLA has measured on a GPU about single fusions; its size is limited as theirs."""
    return directory / "tuning"


def captures_directory(directory: Path) -> Path:
    """Return the directory of records on captures that cost more than they saved."""
    return directory / "captures"


def devices_file(chosen: "Settings") -> Path:
    """Return the file with the number of devices that the daemon at the address in these settings had last."""
    return cache_root(chosen) / environment_digest() / "devices" / digest((chosen.address or "").encode(), 6).hex()


def existing_directories() -> list[Path]:
    """Return the existing cache directories of this environment, the user's own first, then the system daemon's."""
    name = user_name()
    roots = [cache_root(), *([] if name is None else [_SYSTEM_ROOT / name])]
    paths = [directory / environment_digest() for directory in roots]
    return [path for path in paths if os.path.isdir(path) and os.access(path, os.X_OK)]


def usage(path: Path) -> tuple[int, int]:
    """Return the number of files in a directory, and their total size in bytes; zeros if there is no directory."""
    sizes: list[int] = []
    with contextlib.suppress(OSError):
        sizes = [entry.stat().st_size for entry in scandir(path) if entry.is_file()]
    return len(sizes), sum(sizes)


def trim(path: Path | str, max_bytes: int) -> int:
    """Delete the oldest files of a directory until the rest takes at most `max_bytes` bytes.

    Returns:
        The number of bytes freed.
    """
    freed = 0
    try:
        stats = [(entry.path, entry.stat()) for entry in scandir(path) if entry.is_file()]
        excess = sum(stat.st_size for _, stat in stats) - max_bytes
        for file, stat in sorted(stats, key=lambda pair: pair[1].st_mtime):
            if freed >= excess:
                break
            unlink(file)
            freed += stat.st_size
    except OSError as error:
        # Other errors are of a signal handler: those of the system have a number.
        if error.errno is None:
            raise
    return freed


def cache_root(chosen: "Settings | None" = None) -> Path:
    """Return the directory that contains the cache directories of all environments."""
    from jitclient.core.settings import settings  # its import takes longer than that of this module

    given = (chosen or settings()).cache_dir or os.environ.get("CACHE_DIRECTORY")  # systemd sets CACHE_DIRECTORY
    if given:
        return Path(given)
    # The common case of Linux, as in platformdirs, whose import takes longer than a short program's exit.
    if sys.platform == "linux":
        for name, below in (("XDG_CACHE_HOME", ""), ("HOME", ".cache")):
            if os.path.isabs(os.environ.get(name, "")):
                return Path(os.environ[name], below, "jitserver")
    import platformdirs  # rarely needed

    try:
        return Path(platformdirs.user_cache_dir("jitserver", appauthor=False))
    # This user has no home directory.
    except RuntimeError:
        return runtime_directory() / "cache"


def runtime_directory() -> Path:
    """Return the user's directory for sockets and locks; create it if missing.

    Raises:
        OSError: no directory can be created that only this user can enter.
    """
    # Not platformdirs: without XDG_RUNTIME_DIR, it warns and uses a directory that another user may own.
    given = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    candidates = [_temporary_directory, lambda: Path("~/.cache/jitserver/run").expanduser()]
    # `su` and `sudo` may leave another user's directory in the variable.
    if os.path.isdir(given) and os.stat(given).st_uid == os.getuid():
        candidates.insert(0, lambda: Path(given) / "jitserver")
    return usable_directory(candidates, _MAX_DIRECTORY_BYTES)


def _temporary_directory() -> Path:
    import tempfile  # slow to import, rarely needed

    return Path(tempfile.gettempdir()) / f"jitserver-{os.getuid()}"


def usable_directory(candidates: Iterable[Callable[[], Path]], max_bytes: int = 4096) -> Path:
    """Return the first usable directory, created if missing; warn if it is not the first candidate.

    A directory is usable if only this user can enter it, it is writable, and its path has at most `max_bytes` bytes.

    Raises:
        OSError: no candidate is usable.
    """
    problems: list[str] = []
    for candidate in candidates:
        try:
            directory = candidate()
            if not directory.is_absolute():
                raise OSError(f"{directory} is not an absolute path")
            if len(os.fsencode(directory)) > max_bytes:
                raise OSError(f"the path {directory} is too long for a socket")
            found = private_directory(directory)
            if not os.access(found, os.W_OK):
                raise OSError(f"{directory} is not writable")
        except (OSError, RuntimeError, SettingsError) as error:
            # RuntimeError: this user has no home directory.
            problems.append(str(error))
        else:
            if problems:
                _notice(f"jitserver uses the directory {found}, because {problems[0]}")
            return found
    raise OSError("; ".join(problems))


def _notice(text: str) -> None:
    """Warn; print the text if the program turns warnings into errors, as `jitclient.core.notices` does."""
    try:
        warnings.warn(text, RuntimeWarning, stacklevel=3)
    except Warning:
        with contextlib.suppress(Exception):  # stderr may be closed
            print(f"jitserver: {text}", file=sys.stderr, flush=True)


def private_directory(path: Path) -> Path:
    """Create a directory that only this user can enter.

    Raises:
        SettingsError: the path belongs to another user, or is not a directory.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise SettingsError(f"{path} is not a directory owned by this user (uid {os.getuid()})")
    if stat.S_IMODE(found.st_mode) & 0o077:
        path.chmod(0o700)
    return path
