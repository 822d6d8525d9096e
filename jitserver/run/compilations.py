"""Operations outside of jitted functions, which no daemon sees: what JAX makes of them is there for the next run."""

import contextlib
import sys

from jitclient.core.settings import settings
from jitclient.errors import SettingsError
from jitclient.jaxside import interop
from jitclient.jaxside.operations import reuse
from jitclient.wire.address import remote


def keep() -> None:
    """Have a helper prepare what JAX traces and lowers in this process of a run, and JAX keep what it compiles in the
    cache of the user's daemon, which limits it, unless the user told JAX where to.
    """
    if remote(settings().address) is None:
        interop.when_loaded(_keep)


def _keep() -> None:
    reuse.use()
    if sys.modules["jax"].config.jax_compilation_cache_dir:
        return
    from jitserver.programs import xla_cache
    from jitserver.store import folder

    with contextlib.suppress(OSError, SettingsError):  # without a cache, they are compiled each time
        xla_cache.keep_in(folder.texts(folder.part()), least_seconds=0.0)
