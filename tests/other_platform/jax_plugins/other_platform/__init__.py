"""A platform of JAX that is not called "cpu", on a machine that has nothing but its CPU.

The package copies the function table of XLA's CPU plugin (PyPI: lammps-jax-pjrt-cpu), replaces some of the functions,
and registers the copy with JAX under another name. README.md lists the environment variables and the limits. Without
the variable OTHER_PLATFORM, the package does nothing.
"""

import ctypes
import os
from typing import Any

from . import accelerator, faults, memory
from .table import Table

_PRIORITY = 500  # above those of JAX's own platforms, so that this one is the default
_registered: list[Any] = []  # forever, because JAX keeps addresses of both


def initialize() -> None:
    """Register the platform. JAX calls this function when it searches for plugins."""
    name = os.environ.get("OTHER_PLATFORM")
    if not name:
        return
    import lammps_jax_pjrt_cpu
    from jax._src import xla_bridge
    from jaxlib import xla_client

    library = ctypes.CDLL(str(lammps_jax_pjrt_cpu.PLUGIN_PATH))
    library.GetPjrtApi.restype = ctypes.c_void_p
    table = Table(library.GetPjrtApi())
    _registered.extend((library, table))
    _replace_functions(table, name)
    _prepare_jax(name)
    options = {"cpu_device_count": max(_device_ids()) + 1}

    def client() -> Any:
        if not xla_client.pjrt_plugin_initialized(name):
            xla_client.initialize_pjrt_plugin(name)
        return xla_client.make_c_api_client(name, options, None)

    # JAX's own factory would pass options of CUDA's plugin, which this one rejects.
    xla_bridge.register_plugin(name, c_api=table.capsule(), priority=_PRIORITY, factory=client)


def _device_ids() -> list[int]:
    """Return the ids of the devices: the variable has them, or else their number."""
    text = os.environ.get("OTHER_PLATFORM_DEVICES", "2")
    return [int(each) for each in text.split(",")] if "," in text else list(range(int(text)))


def _replace_functions(table: Table, name: str) -> None:
    kind = os.environ.get("OTHER_PLATFORM_KIND", "Fake accelerator")
    accelerator.rename(table, name, os.environ.get("OTHER_PLATFORM_VERSION", "1"), kind)
    accelerator.choose_devices(table, _device_ids())
    if os.environ.get("OTHER_PLATFORM_HOST", "0") != "1":
        accelerator.separate_memory(table)
    if "OTHER_PLATFORM_SLOW" in os.environ:
        accelerator.delay_transfers(table, float(os.environ["OTHER_PLATFORM_SLOW"]))
    if "OTHER_PLATFORM_MEMORY" in os.environ:
        memory.limit_memory(table, int(os.environ["OTHER_PLATFORM_MEMORY"]), os.environ.get("OTHER_PLATFORM_SHARED"))
    # The last replacements are the first to run: a broken device fails before anything else.
    if "OTHER_PLATFORM_ABORT" in os.environ:
        faults.abort_after_launches(table, os.environ["OTHER_PLATFORM_ABORT"])
    if "OTHER_PLATFORM_REFUSES" in os.environ:
        faults.refuse_executables(table)
    if "OTHER_PLATFORM_FULL" in os.environ:
        faults.exhaust_memory(table, os.environ["OTHER_PLATFORM_FULL"])
    if "OTHER_PLATFORM_BROKEN" in os.environ:
        faults.break_device(table, os.environ["OTHER_PLATFORM_BROKEN"])


def _prepare_jax(name: str) -> None:
    """Make JAX treat the platform as it treats those that it knows."""
    from jax._src import hardware_utils, xla_bridge
    from jax._src.interpreters import mlir

    if name == "cuda":  # JAX ignores this platform where it finds no device file of NVIDIA's
        hardware_utils.has_visible_nvidia_gpu = lambda: True
    elif name not in mlir._platforms_with_donation:
        mlir._platforms_with_donation.append(name)
    xla_bridge._nonexperimental_plugins.add(name)  # otherwise each process warns on stderr
