"""What must be equal in a helper and a command, for a child of the one to be like the other.

What is unlike selects another helper: the digest of it all is a part of the name of the helper's socket.
"""

import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from jitclient.core.digests import digest

_PREFIXES = (
    "BLIS_",
    "CUDA_",
    "GLIBC_",
    "GOTO_",
    "HIP_",
    "JAX_",
    "KMP_",
    "LC_",
    "LD_",
    "LIBTPU_",
    "MALLOC_",
    "MKL_",
    "NCCL_",
    "NUMEXPR_",
    "NVIDIA_",
    "OMP_",
    "OPENBLAS_",
    "PYTHON",
    "ROCR_",
    "TF_",
    "TPU_",
    "XLA_",
)
_NAMES = ("HOME", "INPUTRC", "JITSERVER_ADDRESS", "JITSERVER_CACHE_DIR", "LANG", "LANGUAGE", "TERM", "TMPDIR", "TZ")
"""Variables that Python and native libraries read when they are loaded. What imports read through `os.environ` is noted
when they do: see `footprint`.
"""

_RIGHTS = ("Cap", "Gid", "Groups", "Mems_allowed_list", "NoNewPrivs", "Seccomp", "Speculation", "THP", "Uid")
_FILES = (
    *("cgroup", "coredump_filter", "limits", "loginuid", "oom_score_adj", "personality", "sessionid", "timerslack_ns"),
)


def facts(environment: Mapping[str, str] = os.environ, folders: Iterable[str] | None = None) -> dict[str, object]:
    """What must be equal, by what it is about; of plain values only.

    Args:
        environment: the variables.
        folders: where modules are looked for, without the one that Python puts before the others for a script.
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
        "streams": [manner(stream) for stream in (sys.stdin, sys.stdout, sys.stderr)],
        "folders of modules": list(own_folders() if folders is None else folders),
        "variables": sorted(item for item in environment.items() if item[0].startswith(_PREFIXES) or item[0] in _NAMES),
        "user and rights": [line for line in _read("status").splitlines() if line.startswith(_RIGHTS)],
        "processors": (sorted(os.sched_getaffinity(0)), os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)),
        "namespaces": [(name, os.readlink(f"/proc/self/ns/{name}")) for name in sorted(os.listdir("/proc/self/ns"))],
        "root": (os.stat("/").st_dev, os.stat("/").st_ino),
        **{name: _read(name) for name in _FILES},
    }


def manner(stream: Any) -> tuple[object, ...]:
    """How a standard stream reads or writes text, whatever it is connected to."""
    return tuple(getattr(stream, name, None) for name in ("encoding", "errors", "write_through"))


def variables() -> dict[bytes, bytes]:
    """The variables of this process for another one like it: with LC_CTYPE as it was given. Where the locale is "C",
    Python sets LC_CTYPE itself; a process that was given that would have other flags.
    """
    found = {name: value for name, value in os.environb.items() if name != b"LC_CTYPE"}
    for item in _read("environ").split("\0"):
        name, _, value = item.partition("=")
        if name == "LC_CTYPE":
            found[os.fsencode(name)] = os.fsencode(value)
    return found


def own_folders() -> list[str]:
    """`sys.path` as it was before Python put the folder of a script, or the working folder, before the others."""
    return sys.path[0 if sys.flags.safe_path else 1 :]


def key(found: Mapping[str, object]) -> str:
    """The digest of some facts."""
    return digest(repr(sorted(found.items())).encode(errors="surrogateescape"), 6).hex()


def _read(name: str) -> str:
    try:
        with open(f"/proc/self/{name}", errors="replace") as file:
            return file.read()
    except OSError:  # this kernel has no such file
        return ""
