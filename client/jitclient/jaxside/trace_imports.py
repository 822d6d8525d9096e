"""Imports within a trace: the bodies of modules run as outside of it, so that their constants are arrays.

JAX itself leaves tracers in such a module, and the next trace that uses these fails: in a daemon, that of another
process.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager

from jitclient.core.module_bodies import BodiesWithin


@contextlib.contextmanager
def evaluated() -> Iterator[None]:
    """Keep the modules that this thread imports in the `with` block out of its trace."""
    before, _here.is_tracing = _here.is_tracing, True
    with _lock:
        _tracing.append(_finder)
        # A program may have changed the list since.
        if _finder not in sys.meta_path:
            sys.meta_path.insert(0, _finder)
    try:
        yield
    finally:
        _here.is_tracing = before
        with _lock:
            _tracing.pop()
            if not _tracing and _finder in sys.meta_path:
                sys.meta_path.remove(_finder)


class _OfThread(threading.local):
    is_tracing = False


def _around(name: str) -> AbstractContextManager[None] | None:
    if not _here.is_tracing or name.partition(".")[0] in sys.stdlib_module_names:
        return None
    import jax

    return jax.ensure_compile_time_eval()


_here = _OfThread()
_finder = BodiesWithin(_around)
_lock = threading.RLock()
_tracing: list[BodiesWithin] = []
"""The finder, once for each trace in progress."""


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()  # another thread of the parent may hold it


os.register_at_fork(after_in_child=_after_fork)
