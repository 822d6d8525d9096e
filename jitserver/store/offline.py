"""The cache as the disk has it, for commands while no daemon runs."""

import contextlib
import sqlite3
from collections.abc import Callable
from typing import TypeVar

from jitclient.wire.messages import EntryInfo
from jitserver.store import folder
from jitserver.store.catalog import CATALOG, Catalog
from jitserver.store.entry import Stored
from jitserver.store.files import Corrupt

Found = TypeVar("Found")


def infos(prefix: str = "") -> list[EntryInfo]:
    """The programs whose key starts with `prefix`, or whose function has that name; all where it is empty."""
    found = reversed(_each(lambda catalog: catalog.infos(prefix)))
    return list({info.key: info for infos in found for info in infos}.values())


def find(key: str) -> Stored | None:
    """The program of that key."""
    return next((stored for stored in _each(lambda catalog: catalog.find(key)) if stored is not None), None)


def named(name: str) -> list[Stored]:
    """Programs of that name, the ones used last first: some of them, where there are many."""
    return [stored for found in _each(lambda catalog: catalog.named(name)) for stored in found]


def _each(ask: Callable[[Catalog], Found]) -> list[Found]:
    answers = []
    for part in folder.parts_there():
        with contextlib.suppress(Corrupt, sqlite3.Error):
            catalog = Catalog(part / CATALOG, writes=False)
            try:
                answers.append(ask(catalog))
            finally:
                catalog.close()
    return answers
