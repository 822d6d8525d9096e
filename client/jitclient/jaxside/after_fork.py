"""The state of jax in a child forked from a process with a backend: its threads do not exist in the child."""

import contextlib
import ctypes
import os

from jitclient.jaxside import internals


def has_no_threads() -> bool:
    """Return whether this process is such a child: a trace may wait forever for one of the missing threads."""
    return _is_child


_is_child = False


def _after_fork() -> None:
    global _is_child
    if _is_child or internals.may_have_threads():
        _is_child = True
        with contextlib.suppress(Exception):
            _keep_backends()


def _keep_backends() -> None:
    """Keep every backend alive until the child exits: freeing one waits for its threads, which do not exist here.

    In a program of plain JAX, the compiled programs keep the backends alive. Under jitserver, an own trace starts a
    backend but compiles nothing.
    """
    for backend in internals.backends():
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(backend))


os.register_at_fork(after_in_child=_after_fork)
