"""Facts that must be equal in a helper and a command, so that a child of the helper behaves like the command.

Other facts select another helper: the digest of all facts is part of the name of the helper's socket.
"""

import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from jitclient.core.digests import digest

ACCELERATOR_PREFIXES = ("CUDA_", "HIP_", "JAX_", "LIBTPU_", "NCCL_", "NVIDIA_", "ROCR_", "TF_", "TPU_", "XLA_")
_PREFIXES = (
    *ACCELERATOR_PREFIXES,
    "BLIS_",
    "GLIBC_",
    "GOTO_",
    "KMP_",
    "LC_",
    "LD_",
    "MALLOC_",
    "MKL_",
    "NUMEXPR_",
    "OMP_",
    "OPENBLAS_",
    "PYTHON",
)
_NAMES = ("HOME", "INPUTRC", "JITSERVER_ADDRESS", "JITSERVER_CACHE_DIR", "LANG", "LANGUAGE", "TERM", "TMPDIR", "TZ")
"""Environment variables that Python and native libraries read when they are loaded.

`import_audit` notes the variables that imports read through `os.environ`.
"""

_RIGHTS = ("Cap", "Gid", "Groups", "Mems_allowed_list", "NoNewPrivs", "Seccomp", "Speculation", "THP", "Uid")
_FILES = ("coredump_filter", "limits", "loginuid", "oom_score_adj", "personality", "sessionid", "timerslack_ns")


def facts(
    environment: Mapping[str, str] = os.environ, directories: Iterable[str] | None = None, *, terminal: bool
) -> dict[str, object]:
    """Return the facts that must be equal, by subject, as plain values.

    Args:
        environment: the environment variables.
        directories: directories to search for modules, without the one that Python puts first for a script.
        terminal: whether standard output is a terminal, as imports see it: JAX's ask, and keep the answer.
    """
    return {
        "interpreter": [
            sys.executable,
            sys.version,
            sys.prefix,
            str(sys.flags),
            str(sys._xoptions),
            str(sys.warnoptions),
        ],
        "terminal": terminal,
        "streams": [stream_settings(stream) for stream in (sys.stdin, sys.stdout, sys.stderr)],
        "module directories": list(own_directories() if directories is None else directories),
        "variables": sorted(native_variables(environment).items()),
        "user and rights": [line for line in _read("status").splitlines() if line.startswith(_RIGHTS)],
        "processors": (sorted(os.sched_getaffinity(0)), os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)),
        "namespaces": [(name, os.readlink(f"/proc/self/ns/{name}")) for name in sorted(os.listdir("/proc/self/ns"))],
        "root": (os.stat("/").st_dev, os.stat("/").st_ino),
        "control groups": control_groups(_read("cgroup")),
        **{name: _read(name) for name in _FILES},
    }


def native_variables(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return the environment variables that Python and native libraries read when they are loaded."""
    return {name: value for name, value in environment.items() if name.startswith(_PREFIXES) or name in _NAMES}


def control_groups(listing: str) -> list[str]:
    """Return the control groups of a process below the roots of their hierarchies: `controllers:path`.

    The kernel lists all hierarchies of the machine. Whenever one is mounted, even in another container, each process is
    in its root, which limits nothing; and a hierarchy that is mounted again has another number.
    """
    groups = (line.split(":", 1)[1] for line in listing.splitlines())
    return sorted(group for group in groups if not group.endswith(":/"))


def stream_settings(stream: Any) -> tuple[object, ...]:
    """Return how a standard stream reads or writes text, independent of the file that it is connected to."""
    return tuple(getattr(stream, name, None) for name in ("encoding", "errors", "write_through"))


def variables() -> dict[bytes, bytes]:
    """Return the environment variables for another process like this one, with LC_CTYPE in its original form.

    If the locale is "C", Python itself sets LC_CTYPE. A process that gets this value at its start would have other
    flags.
    """
    found = {name: value for name, value in os.environb.items() if name != b"LC_CTYPE"}
    for item in _read("environ").split("\0"):
        name, _, value = item.partition("=")
        if name == "LC_CTYPE":
            found[os.fsencode(name)] = os.fsencode(value)
    return found


def own_directories() -> list[str]:
    """Return `sys.path` without the directory of the script, or the working directory, that Python put first."""
    return sys.path[0 if sys.flags.safe_path else 1 :]


def key(found: Mapping[str, object]) -> str:
    """Return the digest of some facts."""
    return digest(repr(sorted(found.items())).encode(errors="surrogateescape"), 6).hex()


def _read(name: str) -> str:
    try:
        with open(f"/proc/self/{name}", errors="replace") as file:
            return file.read()
    except OSError:  # this kernel has no such file
        return ""
