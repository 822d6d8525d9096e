"""Whose memory the arrays of the client's own jax are in."""

import contextlib
import functools
import os
import sys
import threading
from typing import Any

from jitclient.wire.array_transport import ALIGNMENT, allocate

_LIBRARIES = ("numpy", "random", "lax", "nn", "scipy")  # of functions that JAX has compiled itself
_EXECUTIONS = ("ExecuteReplicated.__call__", "apply_primitive", "Compiled.__call__")


def is_of_xla(array: Any) -> bool:
    """Whether an array is what a computation gave: its memory is XLA's, and nobody writes there any more. Of one that
    was put on the device that is not known: it may be another's memory, used in place.

    JAX remembers which line made an array; where it does not, nothing is known.
    """
    try:
        innermost = array.traceback.frames[0]
        path, within_jax = innermost.file_name, os.path.dirname(sys.modules["jax"].__file__ or "") + os.sep
    except (AttributeError, IndexError, TypeError):
        return False
    libraries = tuple([f"{within_jax}_src{os.sep}{name}{end}" for name in _LIBRARIES for end in (os.sep, ".py")])
    is_computed = not path.startswith(within_jax) or path.startswith(libraries)
    return (is_computed or innermost.function_name in _EXECUTIONS) and _results_are_new()


@functools.cache
def _results_are_new() -> bool:
    """Whether this version of jax gives results memory of their own, also where a function returns its argument."""
    found: list[bool] = []
    # A thread of its own has none of the settings that this one's blocks have made: meshes, guards, `no_tracing`.
    probe = threading.Thread(target=lambda: found.append(_probed()))
    probe.start()
    probe.join()
    return found == [True]


def _probed() -> bool:
    jax = sys.modules["jax"]
    with contextlib.suppress(Exception), jax.disable_jit(False), jax.transfer_guard("allow"), jax.log_compiles(False):
        given = jax.device_put(allocate(ALIGNMENT))
        same = jax.jit(lambda array: array)
        return all(same(given).unsafe_buffer_pointer() != given.unsafe_buffer_pointer() for _ in range(3))
    return False
