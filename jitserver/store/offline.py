"""Read access to the cache on disk, for CLI commands while no daemon runs."""

import contextlib
import sqlite3
from collections.abc import Callable
from typing import TypeVar

from jitclient.core import directories
from jitclient.wire.introspection import EntryInfo
from jitserver.store import checked_files
from jitserver.store.catalog import CATALOG, Catalog
from jitserver.store.checked_files import Corrupt
from jitserver.store.entry import Stored
from jitserver.store.environments import BLOBS

Found = TypeVar("Found")


def infos(prefix: str = "") -> list[EntryInfo]:
    """Return the programs whose key starts with `prefix`, or whose function has that name; all if it is empty."""
    found = reversed(_each(lambda catalog: catalog.infos(prefix)))
    return list({info.key: info for infos in found for info in infos}.values())


def stored(key: str) -> Stored | None:
    """Return the program of a call key, or None."""
    return next((found for found in _each(lambda catalog: catalog.find(key)) if found is not None), None)


def capture(stored: Stored) -> bytes | memoryview:
    """Return the capture of a program; empty if there is none."""
    for directory in directories.existing_directories() if stored.capture else ():
        with contextlib.suppress(OSError, Corrupt):
            return checked_files.read(directory / BLOBS / stored.capture[:2] / stored.capture)
    return b""


def _each(ask: Callable[[Catalog], Found]) -> list[Found]:
    answers = []
    for directory in directories.existing_directories():
        with contextlib.suppress(Corrupt, sqlite3.Error):
            catalog = Catalog(directory / CATALOG, writes=False)
            try:
                answers.append(ask(catalog))
            finally:
                catalog.close()
    return answers
