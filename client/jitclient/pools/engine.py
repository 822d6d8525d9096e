"""Interface of engines, as pools use them."""

import importlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from jitclient.errors import SettingsError
from jitclient.pools.tasks import Outcome


class PoolEngine(Protocol):
    """Workers that something else starts, feeds and replaces.

    Attributes:
        client: the engine's own object for all else that it can do.
    """

    client: Any

    def submit(self, name: str, function: bytes, chunks: Sequence[Sequence[bytes]]) -> "list[Future[list[Outcome]]]":
        """Let workers run `tasks.run(chunk, function)` for each chunk; `name` is for people."""
        ...

    def note_begun(self) -> None:
        """Let the futures of tasks that workers have begun say so: they cannot be cancelled any more."""
        ...

    def close(self) -> None:
        """End the workers that were started for the pool, at once."""
        ...


Prepare = Callable[[], None]
"""Function that each worker calls before its first task; its pickle has it by name."""


def imported(name: str, extra: str) -> Any:
    """Return a module of an engine.

    Raises:
        SettingsError: it is not installed; the message names the extra.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise SettingsError(f"pool: {error}. Run `pip install 'jitserver[{extra}]'`") from error
