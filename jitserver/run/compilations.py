"""Reuse of JAX's work on operations outside of jitted functions, which no daemon sees, in later runs."""

import contextlib
import sys

from jitclient.core.settings import settings
from jitclient.errors import SettingsError
from jitclient.jaxside import interop
from jitclient.jaxside.operations import reuse
from jitclient.wire.address import remote


def keep() -> None:
    """Make later runs reuse the operations that JAX traces, lowers and compiles in this process of a run.

    Helpers prepare the traced and lowered operations. JAX keeps the compiled ones in the cache of the user's daemon,
    which limits its size, unless the user has set a cache directory of JAX.
    """
    if remote(settings().address) is None:
        interop.when_loaded(_keep)


def _keep() -> None:
    reuse.use()
    if sys.modules["jax"].config.jax_compilation_cache_dir:
        return
    from jitclient.core import directories
    from jitserver.programs import xla_cache

    # Without a cache, the operations are compiled each time.
    with contextlib.suppress(OSError, SettingsError):
        xla_cache.use_directory(directories.xla_cache_directory(directories.environment_directory()), min_seconds=0.0)
