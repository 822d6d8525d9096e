"""The cache on the disk: owner, readability, damaged files."""

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
    """The folder and the catalog. Files there are trusted, so no other user may write them."""
    there = parts_there()
    if not there:
        yield Finding("cache", "ok", f"{base()}: nothing of this environment yet")
        return
    yield of_folder("cache", there[0])
    yield _catalog(there[0] / CATALOG)
    aside = there[0] / QUARANTINE
    damaged = len(list(aside.iterdir())) if aside.is_dir() else 0
    if damaged:
        says = f"{damaged} files in {aside}: damaged, or from other versions"
        yield Finding(
            "set aside",
            "warning",
            says,
            "nothing, if this is rare: they are deleted after a week; if it happens often, check the disk",
        )


def _catalog(path: Path) -> Finding:
    if not path.exists():
        return Finding("catalog", "ok", "no programs yet")
    try:
        catalog = Catalog(path, writes=False)
        found, total = len(catalog.infos()), catalog.total()
        catalog.close()
    except (sqlite3.Error, Damaged) as error:
        return Finding(
            "catalog", "warning", f"{path}: {error}", "jitserver restart: the daemon then makes a new catalog"
        )
    return Finding("catalog", "ok", f"{found:,} programs, {size(total)}")
