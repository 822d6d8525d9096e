"""Detection of a trace in progress in the program's own jax; a call inside one is part of the trace."""

import functools
import sys
from typing import Any

from jitclient.core.threads import Thread
from jitclient.jaxside import internals


def is_active() -> bool:
    """Return whether this thread is tracing for `jax.jit`, `jax.grad`, `jax.vmap` or any other transformation.

    Return True if no thread can be started for the comparison: the call then runs in this process, which is always
    correct.
    """
    if "jax" not in sys.modules:
        return False
    try:
        return bool(_state() != _state_of_a_fresh_thread())
    except RuntimeError:
        return True


def _state() -> Any:
    # JAX requires a convention, and this is one that it has.
    return _reader()(convention="flax")


_reader = functools.cache(internals.trace_state)


@functools.cache
def _state_of_a_fresh_thread() -> Any:
    found: list[Any] = []
    thread = Thread(lambda: found.append(_state()), "trace state")
    thread.start()
    thread.join()
    if not found:
        raise RuntimeError("the probe thread did not report its trace state")
    return found[0]
