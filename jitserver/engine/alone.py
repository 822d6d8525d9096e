"""Runs programs over several devices one after another.

Two of them at once may wait for each other: on accelerators if they are launched in another order on another device, on
the CPU because XLA has one thread for each device, which one program needs all of. There, XLA ends the process then.
"""

import threading
from collections.abc import Callable
from typing import Any

import jax

_one_at_a_time = threading.Lock()


def alone(run: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a function that computes on several devices."""
    with _one_at_a_time:
        results = run(*arguments)
        # Elsewhere, devices do what was launched in order.
        return jax.block_until_ready(results) if jax.default_backend() == "cpu" else results
