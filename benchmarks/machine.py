"""Where and with what a benchmark ran, and whether the machine was quiet."""

import datetime
import importlib.metadata
import os
import platform
import time
from pathlib import Path
from typing import Any

from benchmarks.processes import PLATFORMS

_PACKAGES = ("jitserver", "jax", "jaxlib", "numpy", "rpyc", "msgspec", "cloudpickle", "ray", "distributed")
_BUSY = 0.1  # this share of all cores at work for others spoils a comparison


def machine(platforms: str = PLATFORMS) -> dict[str, Any]:
    """Cores, processor, versions, load, and a warning unless the machine is quiet.

    Args:
        platforms: those of jax.
    """
    busy, load = _busy_share(1.0), os.getloadavg()[0]
    quiet = busy <= _BUSY
    return {
        "date": datetime.date.today().isoformat(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "processor": _processor(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()}",
        "platforms": platforms,
        "python": platform.python_version(),
        "versions": {name: version for name in _PACKAGES if (version := _version(name))},
        "load_average": load,
        "busy_before": busy,
        "warning": "" if quiet else f"the machine is not quiet: {busy:.0%} of its cores were at work for others before",
    }


def free_share() -> float:
    """The share of the memory that is free, or can be made so; 1 where the system does not tell."""
    meminfo = Path("/proc/meminfo")
    lines = meminfo.read_text().splitlines() if meminfo.exists() else []
    kib = {line.partition(":")[0]: int(line.split()[1]) for line in lines if line.endswith("kB")}
    return kib["MemAvailable"] / kib["MemTotal"] if "MemAvailable" in kib else 1.0


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _busy_share(seconds: float) -> float:
    """The share of all cores at work while this process sleeps; 0 where the system does not tell."""
    if not Path("/proc/stat").exists():
        return 0.0
    before = _ticks()
    time.sleep(seconds)
    total, idle = (now - then for now, then in zip(_ticks(), before, strict=True))
    return 1 - idle / total if total else 0.0


def _ticks() -> tuple[int, int]:
    with open("/proc/stat") as file:
        ticks = [int(text) for text in file.readline().split()[1:9]]
    return sum(ticks), ticks[3] + ticks[4]
