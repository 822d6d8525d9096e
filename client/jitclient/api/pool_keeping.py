"""Data that a pool keeps on the daemon of each host: made in the driver, loaded by the first worker that needs it."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from jitclient.api import keeping
from jitclient.core.digests import digest
from jitclient.core.directories import runtime_directory
from jitclient.core.file_lock import lock, open_lock
from jitclient.errors import JitserverError
from jitclient.pools import tasks
from jitclient.session import process

_MAX_LOADER_BYTES = 1 << 20


class KeptByPool:
    """Data on the daemon of each host, made by `Pool.keep`: an argument for tasks, which get a tree of arrays."""

    def __init__(self, name: str, load: Callable[[], Any], deps: tuple[Any, ...] | None, ttl: float | None) -> None:
        if not callable(load):
            raise TypeError(f"pool.keep({name!r}): pass a function that returns the data, and not {load!r:.60}")
        self._name, self._load = name, tasks.dumps(load)
        if len(self._load) > _MAX_LOADER_BYTES:
            raise ValueError(
                f"pool.keep({name!r}): the function holds {len(self._load) >> 20} MiB, which each task would carry. "
                "Let it read the data on the host"
            )
        self._rest = deps, ttl

    def __reduce__(self) -> Any:
        return _on_host, (self._name, self._load, *self._rest)

    def __repr__(self) -> str:
        return f"<data {self._name!r} of a pool>"


# ---- in a worker


_found: dict[tuple[str, bytes], tuple[tuple[Any, int], Any]] = {}
"""Trees that this worker has found, each with the session and its generation: a daemon that crashes loses them."""


def _on_host(name: str, load: bytes, deps: Any, ttl: float | None) -> Any:
    """Return the tree that is kept on this host, loaded by one worker while others of the host wait."""
    key, here = (name, load), process.session()
    at, tree = _found.get(key, (None, None))
    if at != (here, here.generation):
        with _only_one(name):
            tree = keeping.keep(name, tasks.loads(load), deps=deps, ttl=ttl)
        _found[key] = (here, here.generation), tree
    return tree


@contextlib.contextmanager
def _only_one(name: str) -> Iterator[None]:
    """Let one process of the host at a time load data under a name."""
    try:
        file = open_lock(runtime_directory() / f"keep-{digest(name.encode(), 8).hex()}.lock")
    except (OSError, JitserverError):
        yield
        return
    with file:
        lock(file)
        yield
