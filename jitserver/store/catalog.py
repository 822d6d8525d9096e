"""The catalog: an SQLite database with a row for each program on disk. Several daemons and CLI commands may share it.

SQLite does not notice a flipped byte, so each row ends with a checksum. A damaged row is deleted when it is read.
"""

import contextlib
import dataclasses
import logging
import os
import sqlite3
import stat
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from jitclient.core.digests import digest
from jitclient.wire.introspection import EntryInfo
from jitserver.store.checked_files import TRAILER_BYTES, Corrupt, unpacked
from jitserver.store.entry import KeyComponents, Stored

log = logging.getLogger(__name__)

CATALOG = "catalog.sqlite"
"""File name of the catalog in an environment's cache directory."""

_PRIMARY_CODE = 0xFF
"""Mask of the primary code in one of SQLite's extended error codes."""

_BLOCK_BYTES = 4096
"""Bytes of a block, in which file systems allocate files."""

FORMAT = 7
"""Version of the tables, and of the messages and captures in them.

A catalog of a different version is moved to quarantine.
"""

# Long columns have a table of their own, so that listing the programs does not read them.
_TABLES = """
CREATE TABLE programs (
    key TEXT PRIMARY KEY, base TEXT NOT NULL, name TEXT NOT NULL, executable TEXT NOT NULL, capture TEXT NOT NULL,
    pinned INTEGER NOT NULL, hits INTEGER NOT NULL, saved REAL NOT NULL, last_used REAL NOT NULL, info BLOB NOT NULL,
    checksum BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX bases ON programs (base);
CREATE TABLE details (
    key TEXT PRIMARY KEY REFERENCES programs ON DELETE CASCADE,
    rows BLOB NOT NULL, facts BLOB NOT NULL, request BLOB NOT NULL, checksum BLOB NOT NULL
);
CREATE TABLE blobs (key TEXT PRIMARY KEY, bytes INTEGER NOT NULL, checksum BLOB NOT NULL) WITHOUT ROWID;
"""

_STORED = "SELECT programs.*, details.* FROM programs JOIN details ON programs.key = details.key"
_encode = msgspec.msgpack.encode

Run = Callable[..., list[Any]]
"""Function that runs an SQL statement with the given values and returns the rows."""


@dataclasses.dataclass(frozen=True)
class Use:
    """Hits of one program since they were last recorded.

    Attributes:
        key: the call key.
        hits: the number of hits.
        saved: the seconds that the hits saved.
        last_used: the time of the last hit, in seconds since the epoch.
    """

    key: str
    hits: int
    saved: float
    last_used: float


class _Program(NamedTuple):
    """A row of the table `programs`. Text columns are read as bytes, because damaged text may not decode."""

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
    """An open catalog. Thread-safe.

    Methods raise `sqlite3.Error` if SQLite does, and `Corrupt` if a row cannot be decoded.
    """

    def __init__(self, path: Path, writes: bool = True) -> None:
        """Open the catalog; create it if it is missing and `writes`.

        Raises:
            Corrupt: the file is damaged, or has a different format.
            sqlite3.Error: SQLite cannot open the file.
        """
        self.writes = writes
        self._lock = threading.Lock()
        _check_kinds(path)
        uri = path.absolute().as_uri()
        if writes:
            # Ignore errors here: SQLite reports them when it opens the file.
            with contextlib.suppress(OSError):
                # Create the file readable by its owner only: it contains captured values.
                os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            self._connection = self._opened(f"{uri}?mode=rw")
            return
        try:
            self._connection = self._opened(f"{uri}?mode=ro")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & _PRIMARY_CODE != sqlite3.SQLITE_CANTOPEN:
                raise
            # Where no file can be created, as in a read-only image, SQLite cannot coordinate with writers. If there
            # are any after all, the checksums of the rows tell.
            self._connection = self._opened(f"{uri}?mode=ro&immutable=1")

    def _opened(self, target: str) -> sqlite3.Connection:
        """Open the database file; it is closed with this object at the latest."""
        connection = sqlite3.connect(target, timeout=5.0, check_same_thread=False, uri=True, isolation_level=None)
        connection.text_factory = bytes
        try:
            _prepare(connection, self.writes)
        except BaseException:
            connection.close()
            raise
        weakref.finalize(self, connection.close)
        return connection

    def close(self) -> None:
        """Close the database file."""
        with self._lock:
            self._connection.close()

    # ---- rows

    def find(self, key: str) -> Stored | None:
        """Return the program of a call key, or None."""
        return next(iter(self._stored("WHERE programs.key = ?", key)), None)

    def infos(self, prefix: str = "") -> list[EntryInfo]:
        """Return the programs whose key starts with `prefix`, or whose function has that name."""
        return self._infos("WHERE substr(key, 1, ?) = ? OR name = ?", len(prefix), prefix, prefix)

    def of_base(self, base: str) -> list[EntryInfo]:
        """Return the programs of a base key, which differ in their manifests."""
        return self._infos("WHERE base = ?", base)

    def _infos(self, where: str, *values: object) -> list[EntryInfo]:
        rows = map(_Program._make, self._rows(f"SELECT * FROM programs {where}", *values))
        return [_info(row) for row in rows if self._is_sound("programs", row)]

    def add(self, stored: Stored, sizes: dict[str, int]) -> None:
        """Add or replace a program.

        Args:
            stored: the program.
            sizes: the digest and the size in bytes of each of its blobs.
        """
        info, made = stored.info, stored.components
        used = int(info.pinned), info.hits, float(info.saved), float(info.last_used)
        with self._writing() as run:
            run("DELETE FROM programs WHERE key = ?", info.key)
            _insert(
                run, "programs", info.key, info.base, info.name, stored.executable, stored.capture, *used, _encode(info)
            )
            _insert(run, "details", info.key, _encode(dict(made.rows)), stored.facts, stored.request)
            for name, size in sizes.items():
                _insert(run, "blobs", name, size)

    def use(self, uses: Iterable[Use]) -> None:
        """Record hits of programs; damaged rows stay unchanged."""
        with self._writing() as run:
            for use in uses:
                for row in _changeable(run, use.key):
                    last = max(row.last_used, use.last_used)
                    _update(run, row, hits=row.hits + use.hits, saved=row.saved + use.saved, last_used=last)

    def note(self, infos: Iterable[EntryInfo]) -> None:
        """Record current information about programs, except for the values that have columns of their own."""
        with self._writing() as run:
            for info in infos:
                for row in _changeable(run, info.key):
                    _update(run, row, info=_encode(info))

    def pin(self, keys: Iterable[str], pinned: bool) -> None:
        """Pin programs, which protects them from eviction, or unpin them."""
        with self._writing() as run:
            for key in keys:
                for row in _changeable(run, key):
                    _update(run, row, pinned=int(pinned))

    def remove(self, keys: Iterable[str]) -> list[str]:
        """Remove programs, and return the digests of the blobs that no remaining program needs."""
        with self._writing() as run:
            for key in keys:
                run("DELETE FROM programs WHERE key = ?", key)
            needed = "SELECT executable FROM programs UNION SELECT capture FROM programs"
            rows = run(f"DELETE FROM blobs WHERE key NOT IN ({needed}) RETURNING key")
        self.truncate_log()  # so that the deleted data does not stay there
        return [name.decode(errors="replace") for (name,) in rows]

    def truncate_log(self) -> None:
        """Move the write-ahead log into the catalog. SQLite skips this while other connections read."""
        self._rows("PRAGMA wal_checkpoint(TRUNCATE)")

    # ---- blobs

    def blobs(self) -> dict[str, int]:
        """Return the digest and the size in bytes of each blob that a program needs."""
        rows = self._rows("SELECT * FROM blobs")
        return {row[0].decode(): row[1] for row in rows if self._is_sound("blobs", row)}

    def blob_bytes(self, name: str) -> int | None:
        """Return the size in bytes of a blob; None if no program needs it."""
        rows = self._rows("SELECT * FROM blobs WHERE key = ?", name)
        return next((row[1] for row in rows if self._is_sound("blobs", row)), None)

    def total(self) -> int:
        """Return the bytes that all blobs and the catalog take on the disk, in whole blocks."""
        # Divided without a remainder, like the numbers of blocks that files take.
        blocks = f"(bytes + {TRAILER_BYTES + _BLOCK_BYTES - 1}) / {_BLOCK_BYTES}"
        [(blobs,)] = self._rows(f"SELECT total({blocks} * {_BLOCK_BYTES}) FROM blobs")
        [(pages,)], [(size,)] = self._rows("PRAGMA page_count"), self._rows("PRAGMA page_size")
        return int(blobs + pages * size)

    def check(self) -> None:
        """Run SQLite's integrity check.

        Raises:
            Corrupt: the database is damaged outside of the rows' contents.
        """
        [(found,), *_] = self._rows("PRAGMA integrity_check(1)")
        if found != b"ok":
            raise Corrupt(found.decode(errors="replace"))

    # ---- details

    def _rows(self, query: str, *values: object) -> list[Any]:
        with self._lock:
            return self._connection.execute(query, values).fetchall()

    def _stored(self, where: str, *values: object) -> list[Stored]:
        width = len(_Program._fields)
        found = []
        for row in self._rows(f"{_STORED} {where}", *values):
            program, details = _Program._make(row[:width]), row[width:]
            if self._is_sound("programs", program, details):
                _, rows, facts, request, _ = details
                components = KeyComponents(unpacked(rows, dict[str, bytes]))
                blobs = program.executable.decode(), program.capture.decode()
                found.append(Stored(_info(program), components, facts, request, *blobs))
        return found

    def _is_sound(self, table: str, row: tuple[Any, ...], *details: tuple[Any, ...]) -> bool:
        """Return whether the checksums of a row and of its details match; delete the row if they do not."""
        if all(each[-1] == _checksum(each[:-1]) for each in (row, *details)):
            return True
        log.warning(
            "disk cache: the catalog table %s has a damaged row. Its program is compiled again when needed.",
            table,
        )
        if self.writes:
            # Compare the keys as bytes, because the text of a damaged row may not decode.
            with contextlib.suppress(sqlite3.Error), self._writing() as run:
                run(f"DELETE FROM {table} WHERE CAST(key AS BLOB) = CAST(? AS BLOB)", row[0])
        return False

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Run]:
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield lambda query, *values: self._connection.execute(query, values).fetchall()
                commit(self._connection)
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise


def _check_kinds(path: Path) -> None:
    """Raise Corrupt if the database or a file of SQLite's beside it is no regular file: opening a pipe may block."""
    for name in (path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", "-journal"))):
        with contextlib.suppress(OSError):
            if not stat.S_ISREG(name.lstat().st_mode):
                raise Corrupt(f"{name.name} is no regular file")


def _prepare(connection: sqlite3.Connection, writes: bool) -> None:
    """Create the tables if there are none, and compare them with those of this version."""
    run = connection.execute
    try:
        if writes:
            run("PRAGMA journal_mode = WAL")
            run("PRAGMA synchronous = NORMAL")
            run("PRAGMA foreign_keys = ON")
            # Overwrite deleted rows with zeros: a function may have captured a secret.
            run("PRAGMA secure_delete = ON")
            run("BEGIN IMMEDIATE")
        version = run("PRAGMA user_version").fetchone()[0]
        wanted = [statement.strip().encode() for statement in _TABLES.split(";")[:-1]]
        tables = [sql for (sql,) in run("SELECT sql FROM sqlite_master WHERE sql NOTNULL ORDER BY rowid")]
        if writes and not tables:
            for statement in wanted:
                run(statement.decode())
            run(f"PRAGMA user_version = {FORMAT}")
        elif version != FORMAT:
            raise Corrupt(f"its format is {version}, expected {FORMAT}")
        elif tables != wanted:
            raise Corrupt("its schema differs from the expected one")
        if writes:
            commit(connection)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        if is_damage(error):
            raise Corrupt(str(error)) from error
        raise


def commit(connection: sqlite3.Connection) -> None:
    """End the transaction: what it has written is in the catalog from then on."""
    connection.execute("COMMIT")


def is_damage(error: Exception) -> bool:
    """Return whether an error means that the catalog is damaged.

    Other errors mean that the disk failed, or that another process holds a lock.
    """
    # SQLITE_ERROR is "no such column" or the like, from damaged tables.
    if isinstance(error, sqlite3.OperationalError):
        return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR
    damaged_text = isinstance(error, UnicodeDecodeError)
    return damaged_text or isinstance(error, Corrupt) or type(error) is sqlite3.DatabaseError


def _insert(run: Run, table: str, *row: Any) -> None:
    run(f"INSERT OR REPLACE INTO {table} VALUES ({'?, ' * len(row)}?)", *row, _checksum(row))


def _changeable(run: Run, key: str) -> list[_Program]:
    """Return the row of a program, if it exists and is sound: an update would give a damaged row a valid checksum."""
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
    # The stored value dates from the time of writing; this process's memory tier may not have the program.
    found.in_memory = False
    return found
