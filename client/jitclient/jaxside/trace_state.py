"""Whether the program is inside a trace of its own jax, of which a call is then part."""

import functools
import sys
from collections.abc import Callable
from typing import Any

from jitclient.core.threads import Thread


def is_under_way() -> bool:
    """Whether this thread is tracing for `jax.jit`, `jax.grad`, `jax.vmap` or any other transformation.

    It may be if no thread is available to compare with; then the call runs in this process, which is right in any case.
    """
    if "jax" not in sys.modules:
        return False
    try:
        return bool(_state() != _state_of_a_fresh_thread())
    except RuntimeError:
        return True


def _state() -> Any:
    return _reader()(convention="flax")  # a convention of JAX


@functools.cache
def _reader() -> Callable[..., Any]:
    from jax.extend.core import get_opaque_trace_state

    return get_opaque_trace_state


@functools.cache
def _state_of_a_fresh_thread() -> Any:
    found: list[Any] = []
    thread = Thread(lambda: found.append(_state()), "trace state")
    thread.start()
    thread.join()
    if not found:
        raise RuntimeError("a fresh thread did not say its state")
    return found[0]
