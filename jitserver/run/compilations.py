"""Reuse of JAX's work on operations outside of jitted functions, which no daemon sees, in later runs."""

from jitclient.core.settings import settings
from jitclient.jaxside import interop
from jitclient.jaxside.operations import reuse
from jitclient.wire.address import remote


def keep() -> None:
    """Make later runs reuse the operations that JAX traces, lowers and compiles in this process of a run.

    Helpers prepare the traced and lowered operations; the cache has the compiled ones.
    """
    if remote(settings().address) is None:
        interop.when_loaded(reuse.use)
