"""What is left of jax in a child that was forked from a process with it: its threads are gone there."""

import contextlib
import ctypes
import os
import sys

from jitclient.jaxside import internals


def has_no_threads() -> bool:
    """Whether this is such a child: a trace may wait for one of those threads, and never end."""
    return _is_child


_is_child = False


def _after_fork() -> None:
    global _is_child
    if "jax" in sys.modules:
        _is_child = True
        with contextlib.suppress(Exception):
            _keep_backends()


def _keep_backends() -> None:
    """Have no backend be freed when the child ends: that waits for its threads.

    In a program of plain JAX, what was compiled keeps the backends. In ours, an own trace begins one and compiles
    nothing.
    """
    for backend in internals.backends():
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(backend))


os.register_at_fork(after_in_child=_after_fork)
