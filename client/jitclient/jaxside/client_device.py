"""Pinning of the client's own jax to the CPU, so that it does not allocate the accelerator's memory.

JAX allocates most of a GPU's memory at its first operation, and the daemon needs that memory. So jax is configured to
use the CPU, unless it has already started a backend or the user set JITSERVER_CLIENT_DEVICE=keep.
"""

import dataclasses
import sys

from jitclient.core.notices import print_notice
from jitclient.core.settings import settings
from jitclient.jaxside import internals, interop


@dataclasses.dataclass
class _State:
    is_requested: bool = False
    """Whether jax is to be pinned, immediately or when the program imports it."""
    is_pinned: bool = False
    is_released: bool = False
    platforms: str | None = None
    """Value of `jax_platforms` before jax was pinned."""
    has_notified: bool = False


_state = _State()


def pin() -> None:
    """Make this process's jax compute on the CPU, immediately or when the program imports it.

    Raises:
        SettingsError: JITSERVER_CLIENT_DEVICE has an invalid value.
    """
    if not _state.is_requested and settings().client_device == "cpu":
        _state.is_requested = True
        interop.when_loaded(_pin)


def release() -> None:
    """Restore jax's platform setting if jax has started no backend: without a daemon, it may use the accelerator."""
    # The flag also keeps a jax that the program imports later from being pinned.
    _state.is_released = True
    if _state.is_pinned and not internals.has_backend():
        sys.modules["jax"].config.update("jax_platforms", _state.platforms)
        _state.is_pinned = False


def notify_once(platform: str) -> None:
    """Print once on stderr that jax computes on the CPU in this process, unless the daemon does so, too.

    Args:
        platform: The daemon's platform.
    """
    if _state.is_pinned and platform != "cpu" and not _state.has_notified:
        _state.has_notified = True
        print_notice(
            f"jax runs on the CPU in this process, because the daemon uses the {platform}. "
            "Set JITSERVER_CLIENT_DEVICE=keep to change this."
        )


def _pin() -> None:
    config = sys.modules["jax"].config
    if config.jax_platforms != "cpu" and not _state.is_released and not internals.has_backend():
        _state.is_pinned, _state.platforms = True, config.jax_platforms
        config.update("jax_platforms", "cpu")
