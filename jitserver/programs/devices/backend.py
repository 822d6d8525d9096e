"""The properties of the daemon's backend. No other module distinguishes the CPU from an accelerator."""

import dataclasses
import functools
from importlib.metadata import distributions, entry_points
from pathlib import Path

import jax


@dataclasses.dataclass(frozen=True)
class Backend:
    """The properties of a backend that other modules depend on.

    Attributes:
        export_platform: name of the platform in `jax.export`: "cpu", "cuda", "rocm", "tpu", ...
        plugins: names and versions of the distributions that bring backends to JAX, which programs depend on.
        version: the versions of the platform on this machine, and of its driver and libraries, which executables depend
            on.
        shares_host_memory: whether arrays may use memory of the host: reads copy nothing, and the arrays count as
            memory of the process.
        runs_on_host: whether programs are code for the host's processor, and may call functions of this process.
        finishes_calls: whether a call returns only after its program has run.
    """

    export_platform: str
    plugins: tuple[str, ...]
    version: str
    shares_host_memory: bool
    runs_on_host: bool
    finishes_calls: bool


@functools.cache
def backend() -> Backend:
    """Return the properties of the default backend. The first call initializes JAX's backends."""
    device = jax.devices()[0]
    is_cpu = device.platform == "cpu"
    export_platform = _export_platform(device.platform, device.client.platform_version)
    more = nvidia_versions() if export_platform == "cuda" else []
    return Backend(
        export_platform=export_platform,
        plugins=() if is_cpu else tuple(_plugins()),
        version="" if is_cpu else ", ".join([device.client.platform_version, *more]),
        shares_host_memory=is_cpu,
        runs_on_host=is_cpu,
        finishes_calls=is_cpu,
    )


def _export_platform(platform: str, version: str) -> str:
    """Return the name in `jax.export`. JAX calls the devices of NVIDIA and of AMD "gpu"."""
    return ("rocm" if "rocm" in version.lower() else "cuda") if platform == "gpu" else platform


def nvidia_versions(driver: Path = Path("/proc/driver/nvidia/version")) -> list[str]:
    """Return the versions of NVIDIA's driver and libraries: the platform's own version is that of CUDA at its build."""
    found = {f"{dist.name} {dist.version}" for dist in distributions() if dist.name.startswith("nvidia-")}
    try:
        return [driver.read_text().partition("\n")[0], *sorted(found)]
    except OSError:
        return sorted(found)


def _plugins() -> list[str]:
    """Return name and version of the distributions that bring backends to JAX."""
    found = {point.dist for point in entry_points(group="jax_plugins") if point.dist is not None}
    return sorted(f"{dist.name} {dist.version}" for dist in found)
