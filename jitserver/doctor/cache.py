"""The cache on the disk: whose it is, whether it can be read, and what of it was damaged."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from jitclient.notices.labels import size
from jitserver.cache.catalog import CATALOG, Catalog, Damaged
from jitserver.cache.folder import base, parts_there
from jitserver.cache.store import QUARANTINE
from jitserver.doctor.files import of_folder
from jitserver.doctor.finding import DaemonState, Finding


def cache(state: DaemonState) -> Iterator[Finding]:
    """What is loaded from there is trusted: nobody else may write it."""
    there = parts_there()
    if not there:
        yield Finding("cache", "ok", f"{base()}: nothing of this environment yet")
        return
    yield of_folder("cache", there[0])
    yield _catalog(there[0] / CATALOG)
    aside = there[0] / QUARANTINE
    damaged = len(list(aside.iterdir())) if aside.is_dir() else 0
    if damaged:
        says = f"{damaged} files in {aside}: damaged, or of other versions"
        yield Finding(
            "set aside", "warning", says, "nothing, if it happens once: they go after a week; otherwise see to the disk"
        )


def _catalog(path: Path) -> Finding:
    if not path.exists():
        return Finding("catalog", "ok", "no programs yet")
    try:
        catalog = Catalog(path, writes=False)
        found, total = len(catalog.infos()), catalog.total()
        catalog.close()
    except (sqlite3.Error, Damaged) as error:
        return Finding("catalog", "warning", f"{path}: {error}", "jitserver restart: the daemon begins a new one")
    return Finding("catalog", "ok", f"{found:,} programs, {size(total)}")
