"""JAX's own `jit`, which stays available if a program assigns `jax.jit = jitclient.jit`."""

import sys
from typing import Any

from jitclient.jaxside import interop

_found: list[Any] = []


def original_jit(*fun: Any, **options: Any) -> Any:
    """Compile a function in this process. The arguments are those of `jax.jit`. Imports jax."""
    # The import triggers `when_loaded`, which stores `jax.jit` before any program can replace it.
    import jax  # noqa: F401

    return _found[0](*fun, **options)


interop.when_loaded(lambda: _found.append(sys.modules["jax"].jit))
