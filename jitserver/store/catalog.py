"""The catalog: a row for each program on the disk, in SQLite. Several daemons may share it, and commands read it.

SQLite does not notice a flipped byte, so each row ends with a checksum. A damaged row is removed when it is read.
"""

import contextlib
import dataclasses
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from jitclient.core.digests import digest
from jitclient.wire.messages import EntryInfo
from jitserver.store.entry import Makeup, Stored
from jitserver.store.files import Corrupt, unpacked

log = logging.getLogger(__name__)

CATALOG = "catalog.sqlite"
"""Its name in a part of the cache."""

FORMAT = 4
"""Of the tables, and of the messages and captures in them; a catalog with another is moved aside."""

# What lists read is apart from what is long.
_TABLES = """
CREATE TABLE programs (
    key TEXT PRIMARY KEY, base TEXT NOT NULL, name TEXT NOT NULL, executable TEXT NOT NULL, capture TEXT NOT NULL,
    pinned INTEGER NOT NULL, hits INTEGER NOT NULL, saved REAL NOT NULL, last_used REAL NOT NULL, info BLOB NOT NULL,
    checksum BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX bases ON programs (base);
CREATE TABLE details (
    key TEXT PRIMARY KEY REFERENCES programs ON DELETE CASCADE,
    rows BLOB NOT NULL, parts BLOB NOT NULL, facts BLOB NOT NULL, request BLOB NOT NULL, checksum BLOB NOT NULL
);
CREATE TABLE blobs (key TEXT PRIMARY KEY, bytes INTEGER NOT NULL, checksum BLOB NOT NULL) WITHOUT ROWID;
"""

_STORED = "SELECT programs.*, details.* FROM programs JOIN details ON programs.key = details.key"
_encode = msgspec.msgpack.encode

Run = Callable[..., list[Any]]
"""Runs a statement with these values."""


@dataclasses.dataclass(frozen=True)
class Use:
    """That a program was found: how often since the last time this was told, the seconds saved, and when last."""

    key: str
    hits: int
    saved: float
    last_used: float


class _Program(NamedTuple):
    """A row of `programs`. Text is read as bytes: damaged text may be none."""

    key: bytes
    base: bytes
    name: bytes
    executable: bytes
    capture: bytes
    pinned: int
    hits: int
    saved: float
    last_used: float
    info: bytes
    checksum: bytes


class Catalog:
    """An open catalog. Safe to use from threads. Whatever SQLite raises is `sqlite3.Error`; rows may be `Corrupt`."""

    def __init__(self, path: Path, writes: bool = True) -> None:
        """Opens it, or raises Corrupt; where it is missing it is made, if this is somebody who writes."""
        self.writes = writes
        self._lock = threading.Lock()
        if writes:
            with contextlib.suppress(OSError):  # what is wrong, SQLite says
                os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # captured values lie in it
        target = str(path) if writes else f"{path.as_uri()}?mode=ro"
        self._connection = sqlite3.connect(
            target, timeout=5.0, check_same_thread=False, uri=not writes, isolation_level=None
        )
        self._connection.text_factory = bytes
        try:
            self._open(writes)
        except BaseException:
            self._connection.close()
            raise

    def _open(self, writes: bool) -> None:
        run = self._connection.execute
        try:
            if writes:
                run("PRAGMA journal_mode = WAL")
                run("PRAGMA synchronous = NORMAL")
                run("PRAGMA foreign_keys = ON")
                run("PRAGMA secure_delete = ON")  # what a function captured may be a secret
                run("BEGIN IMMEDIATE")
            version = run("PRAGMA user_version").fetchone()[0]
            wanted = [statement.strip().encode() for statement in _TABLES.split(";")[:-1]]
            tables = [sql for (sql,) in run("SELECT sql FROM sqlite_master WHERE sql NOTNULL ORDER BY rowid")]
            if writes and not tables:
                for statement in wanted:
                    run(statement.decode())
                run(f"PRAGMA user_version = {FORMAT}")
            elif version != FORMAT:
                raise Corrupt(f"it is of format {version}, this is {FORMAT}")
            elif tables != wanted:
                raise Corrupt("its tables are not as they were made")
            if writes:
                self.commit()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if is_damage(error):
                raise Corrupt(str(error)) from error
            raise

    def close(self) -> None:
        """Lets go of the file."""
        with self._lock:
            self._connection.close()

    # ---- rows

    def find(self, key: str) -> Stored | None:
        """The program of that key."""
        return next(iter(self._stored("WHERE programs.key = ?", key)), None)

    def infos(self, prefix: str = "") -> list[EntryInfo]:
        """The programs whose key starts with `prefix`, or whose function has that name."""
        return self._infos("WHERE substr(key, 1, ?) = ? OR name = ?", len(prefix), prefix, prefix)

    def of_base(self, base: str) -> list[EntryInfo]:
        """The programs of a base key, which differ in their manifests."""
        return self._infos("WHERE base = ?", base)

    def _infos(self, where: str, *values: object) -> list[EntryInfo]:
        rows = map(_Program._make, self._rows(f"SELECT * FROM programs {where}", *values))
        return [_info(row) for row in rows if self._is_sound("programs", row)]

    def named(self, name: str, most: int = 200) -> list[Stored]:
        """Programs of that name, the ones used last first."""
        return self._stored("WHERE name = ? ORDER BY last_used DESC LIMIT ?", name, most)

    def add(self, stored: Stored, sizes: dict[str, int]) -> None:
        """Adds a program, or replaces it, with the sizes of its blobs."""
        info, made = stored.info, stored.makeup
        used = int(info.pinned), info.hits, float(info.saved), float(info.last_used)
        with self._writing() as run:
            run("DELETE FROM programs WHERE key = ?", info.key)
            _insert(
                run, "programs", info.key, info.base, info.name, stored.executable, stored.capture, *used, _encode(info)
            )
            _insert(run, "details", info.key, _encode(dict(made.rows)), made.parts, stored.facts, stored.request)
            for name, size in sizes.items():
                _insert(run, "blobs", name, size)

    def use(self, uses: Iterable[Use]) -> None:
        """Notes that programs were found."""
        with self._writing() as run:
            for use in uses:
                for row in _changeable(run, use.key):
                    last = max(row.last_used, use.last_used)
                    _update(run, row, hits=row.hits + use.hits, saved=row.saved + use.saved, last_used=last)

    def note(self, infos: Iterable[EntryInfo]) -> None:
        """Notes what is known of programs by now; what columns of their own hold stays as it is."""
        with self._writing() as run:
            for info in infos:
                for row in _changeable(run, info.key):
                    _update(run, row, info=_encode(info))

    def pin(self, keys: Iterable[str], pinned: bool) -> None:
        """Has programs stay, or lets them go again."""
        with self._writing() as run:
            for key in keys:
                for row in _changeable(run, key):
                    _update(run, row, pinned=int(pinned))

    def remove(self, keys: Iterable[str]) -> list[str]:
        """Forgets programs; returns the blobs that no other needs."""
        with self._writing() as run:
            for key in keys:
                run("DELETE FROM programs WHERE key = ?", key)
            needed = "SELECT executable FROM programs UNION SELECT capture FROM programs"
            rows = run(f"DELETE FROM blobs WHERE key NOT IN ({needed}) RETURNING key")
        self._rows("PRAGMA wal_checkpoint(TRUNCATE)")  # nor is it left in the log, if nobody reads that just now
        return [name.decode(errors="replace") for (name,) in rows]

    # ---- blobs

    def blobs(self) -> dict[str, int]:
        """The bytes of each blob that a program needs."""
        rows = self._rows("SELECT * FROM blobs")
        return {row[0].decode(): row[1] for row in rows if self._is_sound("blobs", row)}

    def total(self) -> int:
        """The bytes of all of them, and of the catalog."""
        [(blobs,)] = self._rows("SELECT total(bytes) FROM blobs")
        [(pages,)], [(size,)] = self._rows("PRAGMA page_count"), self._rows("PRAGMA page_size")
        return int(blobs + pages * size)

    def check(self) -> None:
        """Raises Corrupt if there is damage between the rows."""
        [(found,), *_] = self._rows("PRAGMA integrity_check(1)")
        if found != b"ok":
            raise Corrupt(found.decode(errors="replace"))

    # ---- details

    def commit(self) -> None:
        """Ends a transaction: all of it is there from now on, or none."""
        self._connection.execute("COMMIT")

    def _rows(self, query: str, *values: object) -> list[Any]:
        with self._lock:
            return self._connection.execute(query, values).fetchall()

    def _stored(self, where: str, *values: object) -> list[Stored]:
        width = len(_Program._fields)
        found = []
        for row in self._rows(f"{_STORED} {where}", *values):
            program, details = _Program._make(row[:width]), row[width:]
            if self._is_sound("programs", program, details):
                _, rows, parts, facts, request, _ = details
                makeup = Makeup(unpacked(rows, dict[str, bytes]), parts)
                blobs = program.executable.decode(), program.capture.decode()
                found.append(Stored(_info(program), makeup, facts, request, *blobs))
        return found

    def _is_sound(self, table: str, row: tuple[Any, ...], *details: tuple[Any, ...]) -> bool:
        """Whether a row, and what belongs to it, is as it was written; otherwise it is removed."""
        if all(each[-1] == _checksum(each[:-1]) for each in (row, *details)):
            return True
        log.warning("a damaged row was found among the %s of the catalog; what is lost is made again", table)
        if self.writes:
            with contextlib.suppress(sqlite3.Error), self._writing() as run:  # by bytes, as its text may be none
                run(f"DELETE FROM {table} WHERE CAST(key AS BLOB) = CAST(? AS BLOB)", row[0])
        return False

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Run]:
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield lambda query, *values: self._connection.execute(query, values).fetchall()
                self.commit()
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise


def is_damage(error: Exception) -> bool:
    """Whether a catalog that raised this cannot be used; otherwise it is the disk, or another process holds it."""
    if isinstance(error, sqlite3.OperationalError):  # "no such column", or the like, of damaged tables
        return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR
    damaged_text = isinstance(error, UnicodeDecodeError)
    return damaged_text or isinstance(error, Corrupt) or type(error) is sqlite3.DatabaseError


def _insert(run: Run, table: str, *row: Any) -> None:
    run(f"INSERT OR REPLACE INTO {table} VALUES ({'?, ' * len(row)}?)", *row, _checksum(row))


def _changeable(run: Run, key: str) -> list[_Program]:
    """The row of a program; none if it is damaged, as a change would give it a new checksum."""
    rows = map(_Program._make, run("SELECT * FROM programs WHERE key = ?", key))
    return [row for row in rows if row.checksum == _checksum(row[:-1])]


def _update(run: Run, row: _Program, **changes: Any) -> None:
    changes["checksum"] = _checksum(row._replace(**changes)[:-1])
    columns = ", ".join(f"{column} = ?" for column in changes)
    run(f"UPDATE programs SET {columns} WHERE key = ?", *changes.values(), row.key.decode())


def _checksum(row: tuple[Any, ...]) -> bytes:
    return digest(_encode([value.encode() if isinstance(value, str) else value for value in row]), 8)


def _info(row: _Program) -> EntryInfo:
    found = unpacked(row.info, EntryInfo)
    found.hits, found.saved, found.last_used, found.pinned = row.hits, row.saved, row.last_used, bool(row.pinned)
    found.in_memory = False  # which it was when it was written down
    return found
