"""JAX's own `jit`, even if a program assigns `jax.jit = jitclient.jit`."""

import sys
from typing import Any

from jitclient.jaxside import interop

_found: list[Any] = []


def own_jit(*fun: Any, **options: Any) -> Any:
    """Compile a function in this process; arguments as of `jax.jit`. Imports jax."""
    import jax  # noqa: F401  (its import notes what `jax.jit` is before any program can replace it)

    return _found[0](*fun, **options)


interop.when_loaded(lambda: _found.append(sys.modules["jax"].jit))
