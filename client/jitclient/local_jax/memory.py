"""Whose memory the arrays of the client's own jax are in."""

import functools
import os
import sys
from typing import Any

from jitclient.wire.arrays import ALIGNMENT, allocate

_LIBRARIES = ("numpy", "random", "lax", "nn", "scipy")  # of functions that JAX has compiled itself
_EXECUTIONS = ("ExecuteReplicated.__call__", "apply_primitive", "Compiled.__call__")


def is_of_xla(array: Any) -> bool:
    """Whether an array is what a computation gave: its memory is XLA's, and nobody writes there any more. Of one that
    was put on the device that is not known: it may be another's memory, used in place.

    JAX remembers which line made an array; where it does not, nothing is known.
    """
    try:
        innermost = array.traceback.frames[0]
        path = os.path.relpath(innermost.file_name, os.path.dirname(sys.modules["jax"].__file__ or ""))
    except (AttributeError, IndexError, TypeError):
        return False
    within_jax, room, *_ = *path.split(os.sep), ""
    is_computed = within_jax == os.pardir or room.removesuffix(".py") in _LIBRARIES
    return (is_computed or innermost.function_name in _EXECUTIONS) and _results_are_new()


@functools.cache
def _results_are_new() -> bool:
    """Whether this version of jax gives results memory of their own, also where a function returns its argument."""
    jax = sys.modules["jax"]
    with jax.disable_jit(False), jax.transfer_guard("allow"):
        given = jax.device_put(allocate(ALIGNMENT))
        same = jax.jit(lambda array: array)
        return all(same(given).unsafe_buffer_pointer() != given.unsafe_buffer_pointer() for _ in range(3))
