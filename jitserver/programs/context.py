"""The context of a program: versions, devices, and the caller's JAX settings."""

import contextlib
import functools
import os
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from jitclient.capture.ambient import process_state
from jitclient.capture.steps.format import FORMAT
from jitclient.capture.steps.sharing import class_count as class_count
from jitclient.core.cpu import cpu_features
from jitclient.core.directories import OF_VALUES, process_settings
from jitclient.errors import DaemonUnavailable, SettingsError
from jitclient.jaxside import client_device, shardings
from jitclient.jaxside.context import DEFAULTS
from jitclient.wire.introspection import DeviceMemory
from jitclient.wire.messages import DeviceInfo, Lookup
from jitclient.wire.shardings import Mesh, Sharding
from jitserver.programs.devices.backend import backend
from jitserver.programs.packages import Packages
from jitserver.programs.traces import output


def _on_device(device: Any) -> contextlib.AbstractContextManager[Any]:
    if device is not None and not isinstance(device, str):
        [device] = shardings.to_jax(Sharding(Mesh(*device))).device_set
    entered: contextlib.AbstractContextManager[Any] = jax.default_device(device)
    return entered


def _on_mesh(mesh: Any) -> contextlib.AbstractContextManager[Any]:
    made = shardings.mesh_to_jax(Mesh(*mesh))
    abstract = isinstance(made, jax.sharding.AbstractMesh)
    entered: contextlib.AbstractContextManager[Any] = (jax.sharding.use_abstract_mesh if abstract else jax.set_mesh)(
        made
    )
    return entered


@contextlib.contextmanager
def _in_block(mesh: Any) -> Iterator[None]:
    made = shardings.mesh_to_jax(Mesh(*mesh))
    with output.withheld():  # the client already showed the deprecation warning
        made.__enter__()
    try:
        yield
    finally:
        made.__exit__(None, None, None)


_ENTER: dict[str, Callable[[Any], contextlib.AbstractContextManager[Any]]] = {
    "eager_constant_folding": lambda folds: jax.ensure_compile_time_eval() if folds else contextlib.nullcontext(),
    "jax_enable_x64": jax.enable_x64,
    "jax_default_matmul_precision": jax.default_matmul_precision,
    "jax_numpy_dtype_promotion": jax.numpy_dtype_promotion,
    "jax_numpy_rank_promotion": jax.numpy_rank_promotion,
    "jax_default_device": _on_device,
    "jax_default_prng_impl": jax.default_prng_impl,
    "jax_threefry_partitionable": jax.threefry_partitionable,
    "jax_allow_f16_reductions": jax.allow_f16_reductions,
    "jax_auto_pcast": jax.auto_pcast,
    "jax_debug_infs": jax.debug_infs,
    "jax_debug_key_reuse": jax.debug_key_reuse,
    "jax_debug_nans": jax.debug_nans,
    "jax_enable_custom_prng": jax.enable_custom_prng,
    "jax_legacy_prng_key": jax.legacy_prng_key,
    "jax_remove_size_one_mesh_axis_from_type": jax.remove_size_one_mesh_axis_from_type,
    "jax_softmax_custom_jvp": jax.softmax_custom_jvp,
    "mesh": _on_mesh,
    "mesh_context_manager": _in_block,
    **process_state.ENTER,
}


@contextlib.contextmanager
def entered(settings: Sequence[tuple[str, Any]]) -> Iterator[None]:
    """Apply the caller's JAX settings and process state to this thread, and JAX's defaults to all other settings."""
    with contextlib.ExitStack() as stack:
        for name, value in {**DEFAULTS, **dict(settings)}.items():
            if name in _ENTER:
                stack.enter_context(_ENTER[name](value))
        yield


def checks_values(settings: Sequence[tuple[str, Any]]) -> bool:
    """Return whether a program made under these settings raises an exception for NaNs or infinities."""
    return any(value for name, value in settings if name in ("jax_debug_nans", "jax_debug_infs"))


@functools.cache
def packages() -> Packages:
    """Return the record of this process's packages."""
    return Packages()


def start_backend() -> None:
    """Initialize JAX's backend and its devices. Unlike in clients, JAX uses the accelerator.

    Raises:
        SettingsError: the platforms in JAX_PLATFORMS have no devices.
    """
    client_device.release()
    try:
        jax.devices()
    # AssertionError: a platform without a plugin.
    except (AssertionError, RuntimeError) as error:
        platforms, why = os.environ.get("JAX_PLATFORMS", ""), f" ({error})" if str(error) else ""
        raise SettingsError(
            f"JAX finds no device of JAX_PLATFORMS={platforms}{why}. Install its plugin (for NVIDIA GPUs, pip "
            "install 'jitserver[cuda13]'), or unset JAX_PLATFORMS."
        ) from error


def start_thread(waits: bool = False) -> None:
    """Initialize JAX's state for this thread; JAX reads the random device at its first use.

    Args:
        waits: wait for the device, whose failure is noticed then.

    Raises:
        DaemonUnavailable: JAX cannot be initialized now, or the device fails.
    """
    try:
        there = jax.device_put(0)
        if waits:
            there.block_until_ready()
    except (RuntimeError, MemoryError) as error:
        raise DaemonUnavailable(f"the daemon (pid {os.getpid()}) cannot use JAX at the moment: {error}") from error


@functools.cache
def of_process() -> dict[str, str]:
    """Return the part of the context that all programs of this daemon share, and their traces, by label."""
    devices = jax.devices()
    return {
        "format": str(FORMAT),
        "python": platform.python_version(),
        "system": f"{sys.platform} {platform.machine()}",
        **jax_versions(),
        "platform": devices[0].platform,
        "devices": ", ".join(device_names()),
        "plugins": ", ".join(backend().plugins),
        **{name.lower(): process_settings().get(name, "") for name in OF_VALUES},
    }


@functools.cache
def of_machine() -> dict[str, str]:
    """Return the part that executables share, and that no trace depends on, by label."""
    return {"backend": backend().version or cpu_features()}


def of_lookup(lookup: Lookup) -> dict[str, str]:
    """Return the context of a program's key that only the daemon knows, by label."""
    return {**of_process(), **of_machine(), **{name: packages().version(name) for name in lookup.packages}}


def jax_versions() -> dict[str, str]:
    """Return the versions of jax and jaxlib, which must equal the client's."""
    return {name: packages().version(name) for name in ("jax", "jaxlib")}


def device_names() -> tuple[str, ...]:
    """Return the names of the devices for messages and lists."""
    return tuple(f"{device.platform}:{device.id} {device.device_kind}" for device in jax.devices())


def device_infos() -> list[DeviceInfo]:
    """Return the descriptions of the devices for clients."""
    found = jax.devices()
    return [DeviceInfo(device.device_kind, device.platform, _memory(device).get("bytes_limit")) for device in found]


_MEMORY_STATS = "bytes_in_use", "bytes_limit", "pool_bytes", "largest_free_block_bytes"
"""Names in XLA's statistics of a device (tsl/framework/allocator.h)."""


def device_memory() -> list[DeviceMemory]:
    """Return the memory use and the limit of each device; None where they are unknown, as on the CPU."""
    pairs = zip(device_names(), map(_memory, jax.devices()), strict=True)
    return [DeviceMemory(name, *map(stats.get, _MEMORY_STATS)) for name, stats in pairs]


def _memory(device: Any) -> dict[str, int]:
    return device.memory_stats() or {}
