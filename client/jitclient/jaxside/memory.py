"""Detection of arrays of the client's own jax whose memory never changes."""

import contextlib
import functools
import os
import sys
from typing import Any

from jitclient.core.threads import Thread
from jitclient.wire.array_transport import ALIGNMENT, allocate

# Packages and modules in `jax/_src` with functions that JAX itself compiles.
_LIBRARIES = ("numpy", "random", "lax", "nn", "scipy")
_EXECUTIONS = ("ExecuteReplicated.__call__", "apply_primitive", "Compiled.__call__")


def owns_xla_memory(array: Any) -> bool:
    """Return whether an array is the result of a computation, so that XLA owns its memory and never changes it.

    An array from `device_put`, in contrast, may share memory that the program can write. The decision uses the
    traceback of the line that made the array, which JAX records. Without this traceback, the result is False.
    """
    try:
        innermost = array.traceback.frames[0]
        path, within_jax = innermost.file_name, os.path.dirname(sys.modules["jax"].__file__ or "") + os.sep
    except (AttributeError, IndexError, TypeError):
        return False
    libraries = tuple([f"{within_jax}_src{os.sep}{name}{end}" for name in _LIBRARIES for end in (os.sep, ".py")])
    is_computed = not path.startswith(within_jax) or path.startswith(libraries)
    if not is_computed and innermost.function_name not in _EXECUTIONS:
        return False
    try:
        return _results_are_new()
    # The process cannot start a thread for the probe.
    except RuntimeError:
        return False


@functools.cache
def _results_are_new() -> bool:
    """Return whether results have their own memory in this version of jax, even if a function returns its argument."""
    found: list[bool] = []
    # The settings of this thread's `with` blocks (meshes, guards, `no_tracing`) do not apply in a new thread.
    probe = Thread(lambda: found.append(_probed()), "probe")
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
