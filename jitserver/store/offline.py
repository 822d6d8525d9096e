"""Read access to the cache on disk, for CLI commands while no daemon runs."""

import contextlib
import sqlite3
from collections.abc import Callable
from typing import TypeVar

from jitclient.core import directories
from jitclient.wire.introspection import EntryInfo
from jitserver.store.catalog import CATALOG, Catalog
from jitserver.store.checked_files import Corrupt
from jitserver.store.entry import Stored

Found = TypeVar("Found")


def infos(prefix: str = "") -> list[EntryInfo]:
    """Return the programs whose key starts with `prefix`, or whose function has that name; all if it is empty."""
    found = reversed(_each(lambda catalog: catalog.infos(prefix)))
    return list({info.key: info for infos in found for info in infos}.values())


def find(key: str) -> Stored | None:
    """Return the program of a call key, or None."""
    return next((stored for stored in _each(lambda catalog: catalog.find(key)) if stored is not None), None)


def named(name: str) -> list[Stored]:
    """Return programs whose function has that name, the most recently used first; a limited number of them."""
    return [stored for found in _each(lambda catalog: catalog.named(name)) for stored in found]


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
