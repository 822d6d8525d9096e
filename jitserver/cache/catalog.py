"""The catalog: a row for each program on the disk, in SQLite. Several daemons may share it, and commands read it."""

import contextlib
import dataclasses
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from jitclient.wire.messages import EntryInfo
from jitserver.cache.call_key import Makeup
from jitserver.cache.corrupt import Corrupt, unpacked

CATALOG = "catalog.sqlite"
"""Its name in a part of the cache."""

FORMAT = 2
"""Of the tables, and of the messages and captures in them; a catalog with another is moved aside."""

# What lists read is apart from what is long.
_TABLES = """
CREATE TABLE programs (
    key TEXT PRIMARY KEY, name TEXT NOT NULL, executable TEXT NOT NULL, capture TEXT NOT NULL, pinned INTEGER NOT NULL,
    hits INTEGER NOT NULL, saved REAL NOT NULL, last_used REAL NOT NULL, info BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE details (
    key TEXT PRIMARY KEY REFERENCES programs ON DELETE CASCADE,
    rows BLOB NOT NULL, parts BLOB NOT NULL, facts BLOB NOT NULL, request BLOB NOT NULL
);
CREATE TABLE blobs (digest TEXT PRIMARY KEY, bytes INTEGER NOT NULL) WITHOUT ROWID;
"""

_INFO = "info, hits, saved, last_used, pinned"
_STORED = f"SELECT {_INFO}, rows, parts, facts, request, executable, capture FROM programs JOIN details USING (key)"
_encode = msgspec.msgpack.encode


@dataclasses.dataclass(frozen=True)
class Stored:
    """A program on the disk. `facts` and `request` are the engine's business; blobs go by digest, "" for none."""

    info: EntryInfo
    makeup: Makeup
    facts: bytes
    request: bytes
    executable: str
    capture: str

    @property
    def key(self) -> str:
        """The call key."""
        return self.info.key


@dataclasses.dataclass(frozen=True)
class Use:
    """That a program was found: how often since the last time this was told, the seconds saved, and when last."""

    key: str
    hits: int
    saved: float
    last_used: float


class Catalog:
    """An open catalog. Safe to use from threads. Whatever SQLite raises is `sqlite3.Error`; rows may be `Corrupt`."""

    def __init__(self, path: Path, writes: bool = True) -> None:
        """Opens it; where it is missing it is made, if this is somebody who writes.

        Raises:
            Corrupt: it cannot be used.
        """
        self.writes = writes
        self._lock = threading.Lock()
        if writes:
            with contextlib.suppress(OSError):  # what is wrong, SQLite says
                os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # captured values lie in it
        target = str(path) if writes else f"{path.as_uri()}?mode=ro"
        self._connection = sqlite3.connect(
            target, timeout=5.0, check_same_thread=False, uri=not writes, isolation_level=None
        )
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
            empty = not run("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
            if writes and empty:
                for statement in _TABLES.split(";"):
                    run(statement)
                run(f"PRAGMA user_version = {FORMAT}")
            elif version != FORMAT:
                raise Corrupt(f"it is of format {version}, this is {FORMAT}")
            if writes:
                self.commit()
        except sqlite3.OperationalError:
            raise  # the disk, or somebody who holds it: it may be well
        except sqlite3.DatabaseError as error:
            raise Corrupt(str(error)) from error

    def close(self) -> None:
        """Lets go of the file."""
        with self._lock:
            self._connection.close()

    # ---- rows

    def find(self, key: str) -> Stored | None:
        """The program of that key."""
        rows = self._rows(f"{_STORED} WHERE key = ?", key)
        return _stored(rows[0]) if rows else None

    def infos(self, prefix: str = "") -> list[EntryInfo]:
        """The programs whose key starts with `prefix`, or whose function has that name."""
        query = f"SELECT {_INFO} FROM programs WHERE substr(key, 1, ?) = ? OR name = ?"
        return [_info(*row) for row in self._rows(query, len(prefix), prefix, prefix)]

    def named(self, name: str, most: int = 200) -> list[Stored]:
        """Programs of that name, the ones used last first."""
        return [
            _stored(row) for row in self._rows(f"{_STORED} WHERE name = ? ORDER BY last_used DESC LIMIT ?", name, most)
        ]

    def add(self, stored: Stored, sizes: dict[str, int]) -> None:
        """Adds a program, or replaces it, with the sizes of its blobs."""
        info, made = stored.info, stored.makeup
        row = (
            info.key,
            info.name,
            stored.executable,
            stored.capture,
            info.pinned,
            info.hits,
            info.saved,
            info.last_used,
        )
        with self._writing() as run:
            run("DELETE FROM programs WHERE key = ?", info.key)
            run(f"INSERT INTO programs VALUES ({', '.join('?' * 9)})", *row, _encode(info))
            run(
                "INSERT INTO details VALUES (?, ?, ?, ?, ?)",
                info.key,
                _encode(dict(made.rows)),
                made.parts,
                stored.facts,
                stored.request,
            )
            for digest, size in sizes.items():
                run("INSERT OR REPLACE INTO blobs VALUES (?, ?)", digest, size)

    def use(self, uses: Iterable[Use]) -> None:
        """Notes that programs were found."""
        with self._writing() as run:
            for use in uses:
                run(
                    "UPDATE programs SET hits = hits + ?, saved = saved + ?, last_used = max(last_used, ?)"
                    " WHERE key = ?",
                    *(use.hits, use.saved, use.last_used, use.key),
                )

    def note(self, infos: Iterable[EntryInfo]) -> None:
        """Notes what is known of programs by now; what columns of their own hold stays as it is."""
        with self._writing() as run:
            for info in infos:
                run("UPDATE programs SET info = ? WHERE key = ?", _encode(info), info.key)

    def pin(self, keys: Iterable[str], pinned: bool) -> None:
        """Has programs stay, or lets them go again."""
        with self._writing() as run:
            for key in keys:
                run("UPDATE programs SET pinned = ? WHERE key = ?", pinned, key)

    def remove(self, keys: Iterable[str]) -> list[str]:
        """Forgets programs; returns the blobs that no other needs."""
        with self._writing() as run:
            for key in keys:
                run("DELETE FROM programs WHERE key = ?", key)
            needed = "SELECT executable FROM programs UNION SELECT capture FROM programs"
            gone = [digest for (digest,) in run(f"DELETE FROM blobs WHERE digest NOT IN ({needed}) RETURNING digest")]
        self._rows("PRAGMA wal_checkpoint(TRUNCATE)")  # nor is it left in the log, if nobody reads that just now
        return gone

    # ---- blobs

    def blobs(self) -> dict[str, int]:
        """The bytes of each blob that a program needs."""
        return dict(self._rows("SELECT digest, bytes FROM blobs"))

    def total(self) -> int:
        """The bytes of all of them, and of the catalog."""
        [(blobs,)] = self._rows("SELECT coalesce(sum(bytes), 0) FROM blobs")
        [(pages,)], [(size,)] = self._rows("PRAGMA page_count"), self._rows("PRAGMA page_size")
        return int(blobs + pages * size)

    # ---- details

    def commit(self) -> None:
        """Ends a transaction: all of it is there from now on, or none."""
        self._connection.execute("COMMIT")

    def _rows(self, query: str, *values: object) -> list[Any]:
        with self._lock:
            return self._connection.execute(query, values).fetchall()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Callable[..., list[Any]]]:
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield lambda query, *values: self._connection.execute(query, values).fetchall()
                self.commit()
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise


def _info(info: bytes, hits: int, saved: float, last_used: float, pinned: int) -> EntryInfo:
    found = unpacked(info, EntryInfo)
    found.hits, found.saved, found.last_used, found.pinned = hits, saved, last_used, bool(pinned)
    found.in_memory = False  # which it was when it was written down
    return found


def _stored(row: tuple[Any, ...]) -> Stored:
    rows, parts, facts, request, executable, capture = row[5:]
    makeup = Makeup(unpacked(rows, dict[str, bytes]), parts)
    return Stored(_info(*row[:5]), makeup, facts, request, executable, capture)
