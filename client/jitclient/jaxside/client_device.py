"""Pinning of the client's own jax to the CPU, so that it does not allocate the accelerator's memory.

JAX allocates most of a GPU's memory at its first operation, and the daemon needs that memory. So `import jitclient`
configures jax to use the CPU, unless it has already started a backend or the user set JITSERVER_CLIENT_DEVICE=keep. For
meshes over several accelerators, the CPU gets as many devices: as the daemon had last, or as there are GPUs.
"""

import contextlib
import os
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from jitclient.core.notices import print_notice
from jitclient.jaxside import internals, interop

_FORCED = "xla_force_host_platform_device_count"


class _State:  # no dataclass: `jitserver run` has no time to import that module
    is_requested = False
    """Whether jax is to be pinned, immediately or when the program imports it."""
    is_pinned = False
    is_late = False
    """Whether jax had started another backend before it could be pinned."""
    is_released = False
    changed: Mapping[str, tuple[Any, Any]] = MappingProxyType({})
    """Values of jax's options before jax was pinned and since."""
    has_notified = False


_state = _State()


def pin() -> None:
    """Make this process's jax compute on the CPU, immediately or when the program imports it."""
    if not _state.is_requested:
        _state.is_requested = True
        interop.when_loaded(_pin)


def defer() -> None:
    """Undo `pin` until the program itself uses this package: something else has imported it, such as pytest."""
    _restore()
    _state.is_requested = False


def release() -> None:
    """Restore jax's platform setting if jax has started no backend: without a daemon, it may use the accelerator."""
    # The flag also keeps a jax that the program imports later from being pinned.
    _state.is_released = True
    _restore()


def notify_once(platform: str) -> None:
    """Print once on stderr where jax computes in this process, unless the daemon and this process both use the CPU.

    Args:
        platform: The daemon's platform.
    """
    if platform == "cpu" or _state.has_notified:
        return
    if _state.is_pinned:
        _state.has_notified = True
        print_notice(
            f"jax runs on the CPU in this process, because the daemon uses the accelerator ({platform}). "
            "Set JITSERVER_CLIENT_DEVICE=keep to change this."
        )
    elif _state.is_late:
        _state.has_notified = True
        print_notice(
            f"this process holds memory of the accelerator ({platform}), which the daemon needs: it used jax before it "
            "imported jitclient. Import jitclient first, or set JITSERVER_CLIENT_DEVICE=keep if this is intended."
        )


def _restore() -> None:
    if _state.is_pinned and not internals.has_backend():
        config = sys.modules["jax"].config
        for name, (before, pinned) in _state.changed.items():
            # The user may have set the option since, even to an equal value.
            if getattr(config, name) is pinned:
                config.update(name, before)
        _state.is_pinned = False


def _pin() -> None:
    # Read only now, because a program may set the variable after it has imported jitclient. The first call refuses an
    # invalid value.
    is_unwanted = not _state.is_requested or _state.is_released
    if is_unwanted or os.environ.get("JITSERVER_CLIENT_DEVICE", "cpu") != "cpu":
        return
    jax = sys.modules["jax"]
    if internals.has_backend():
        _state.is_late = jax.default_backend() != "cpu"
    elif jax.config.jax_platforms != "cpu":
        pinned: dict[str, Any] = {"jax_platforms": "".join(("c", "pu"))}  # an object of its own
        is_chosen = jax.config.jax_num_cpu_devices > 0 or _FORCED in os.environ.get("XLA_FLAGS", "")
        if not is_chosen and (count := _remembered() or _gpus()) > 1:
            pinned["jax_num_cpu_devices"] = count
        _state.is_pinned = True
        _state.changed = {name: (getattr(jax.config, name), value) for name, value in pinned.items()}
        for name, value in pinned.items():
            jax.config.update(name, value)


def _remembered() -> int:
    """Return how many devices the daemon had when a process of this environment last reached it; 0 if unknown.

    If it has other devices since, the next process knows it. A program for more devices than it has runs here.
    """
    # A failure here must not become one of the program's import of jax; the first call refuses invalid settings.
    with contextlib.suppress(Exception):
        from jitclient.core.directories import devices_file
        from jitclient.core.settings import Settings  # both take milliseconds, which programs without jax do not pay

        # The program may still change its settings.
        return int(devices_file(Settings.from_environment()).read_text())
    return 0


def _gpus() -> int:
    """Return the number of NVIDIA GPUs that jax would use."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        names: list[str] = []
        with contextlib.suppress(OSError):
            names = os.listdir("/dev")
        count = sum(name.startswith("nvidia") and name[len("nvidia") :].isdigit() for name in names)
    else:
        count = len(list(filter(str.strip, visible.split(","))))
    if count < 2:
        return count
    # A failure here must not become one of the program's import of jax.
    with contextlib.suppress(Exception):
        from importlib.metadata import entry_points

        return count if entry_points(group="jax_plugins") else 0
    return 0
