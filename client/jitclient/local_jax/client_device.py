"""Where the client's own jax computes: on the CPU, so that it never takes the accelerator's memory for itself.

JAX takes most of a GPU's memory at its first operation, and the daemon needs it. So jax is told to use the CPU, unless
it has begun to compute already, or JITSERVER_CLIENT_DEVICE=keep.
"""

import dataclasses
import sys

from jitclient.local_jax import interop
from jitclient.settings import settings


@dataclasses.dataclass
class _State:
    is_asked: bool = False  # to pin, now or when the program loads jax
    is_pinned: bool = False
    platforms: str | None = None  # what jax was set to before
    has_said_so: bool = False


_state = _State()


def pin() -> None:
    """Has this process's jax compute on the CPU: now, or when the program loads it.

    Raises:
        SettingsError: JITSERVER_CLIENT_DEVICE makes no sense.
    """
    if not _state.is_asked and settings().client_device == "cpu":
        _state.is_asked = True
        interop.when_loaded(_pin)


def release() -> None:
    """Leaves jax as it was, where it has not begun to compute: without a daemon, this process has the accelerator."""
    if _state.is_pinned and not interop.has_backend():
        sys.modules["jax"].config.update("jax_platforms", _state.platforms)
        _state.is_pinned = False


def say_so(platform: str) -> None:
    """Says once on stderr that jax computes on the CPU here, if it could do so where the daemon does.

    Args:
        platform: what the daemon computes on.
    """
    if _state.is_pinned and platform != "cpu" and not _state.has_said_so:
        _state.has_said_so = True
        print(
            f"jitserver: jax itself computes on the CPU in this process, as the {platform} is the daemon's "
            "(JITSERVER_CLIENT_DEVICE=keep leaves it as it was)",
            file=sys.stderr,
            flush=True,
        )


def _pin() -> None:
    config = sys.modules["jax"].config
    if config.jax_platforms != "cpu" and not interop.has_backend():
        _state.is_pinned, _state.platforms = True, config.jax_platforms
        config.update("jax_platforms", "cpu")
