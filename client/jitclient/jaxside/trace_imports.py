"""Imports within a trace: the bodies of modules run as outside of it, so that their constants are arrays.

JAX itself leaves tracers in such a module, and the next trace that uses these fails: in a daemon, that of another
process.
"""

import contextlib
import sys
import threading
from collections.abc import Iterator

from jitclient.core.module_bodies import BodiesWithin


@contextlib.contextmanager
def evaluated() -> Iterator[None]:
    """Keep the modules that this thread imports in the `with` block out of its trace."""
    import jax

    thread = threading.get_ident()

    def around(name: str) -> contextlib.AbstractContextManager[None] | None:
        is_left_out = threading.get_ident() != thread or name.partition(".")[0] in sys.stdlib_module_names
        return None if is_left_out else jax.ensure_compile_time_eval()

    finder = BodiesWithin(around)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(finder)
