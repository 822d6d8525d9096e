"""A flipped bit in each file of the cache, and in each column of each row of its catalog."""

import random
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.faults.result import Result
from benchmarks.faults.stage import Stage, stage
from jitserver.store.catalog import CATALOG

_PROGRAM = 1
"""The same for all turns, so that it comes from the disk."""


def flips(folder: Path, most: int) -> Iterator[Result]:
    """The results of so many flips of each kind at most."""
    chance = random.Random(0)
    with stage(folder) as there:
        there.turn(number=_PROGRAM)
        there.stop()
        files = sorted(path for path in folder.glob("xdg_cache_home/**/*") if path.is_file() and path.stat().st_size)
        result = Result("flipped files")
        for path in files[:most]:
            _try(there, result, str(path.relative_to(folder)), lambda path=path: _flip(path, chance))  # type: ignore[misc]
        yield result
        result = Result("flipped columns of the catalog")
        [catalog] = folder.glob(f"xdg_cache_home/*/*/{CATALOG}")
        for table, column in _columns(catalog)[:most]:
            act: Callable[[], None] = lambda table=table, column=column: _damage(catalog, table, column)  # type: ignore[misc]  # noqa: E731
            _try(there, result, f"{table}.{column}", act)
        yield result


def _try(there: Stage, result: Result, where: str, damage: Callable[[], None]) -> None:
    damage()
    there.serve()
    result.add(where, there.turn(number=_PROGRAM))
    there.stop()


def _flip(path: Path, chance: random.Random) -> None:
    if path.exists():  # else the daemon has removed it
        data = bytearray(path.read_bytes())
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)


def _columns(catalog: Path) -> list[tuple[str, str]]:
    with sqlite3.connect(catalog) as connection:
        tables = ("programs", "details", "blobs")
        return [(table, row[1]) for table in tables for row in connection.execute(f"PRAGMA table_info({table})")]


def _damage(catalog: Path, table: str, column: str) -> None:
    """Changes a column of all rows as a flipped bit would."""

    def flipped(value: str | bytes | float) -> str | bytes | float:
        if isinstance(value, str):
            return chr(ord(value[:1] or "x") ^ 1) + value[1:]
        return bytes([value[0] ^ 1]) + value[1:] if isinstance(value, bytes) and value else 1

    with sqlite3.connect(catalog) as connection:
        connection.create_function("flipped", 1, flipped)
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute(f"UPDATE OR IGNORE {table} SET {column} = flipped({column})")
    connection.close()
