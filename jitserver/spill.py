"""Sessions to disk and back, where one daemon follows another at the same address.

A file for each session, with the smallest arrays first. What there is no room or time for is left out, and says so when
it is asked for. Arrays that are also kept under a name are in the file of that.
"""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from jitclient.errors import ArrayLost, SettingsError
from jitclient.wire.messages import Failure
from jitserver import array_file, leaving
from jitserver.engine import spilling
from jitserver.engine.failures import failure_of
from jitserver.engine.spilling import Damaged, Stored
from jitserver.kept import Kept, KeptTree
from jitserver.kept_files import Place
from jitserver.session import EntryOf, Failed, Session, State
from jitserver.sessions import Sessions

log = logging.getLogger(__name__)

_MARK = b"jitserver session 2\n"


class Record(msgspec.Struct, array_like=True):
    """What stands behind the arrays in a file. Several handles may be one array."""

    state: State
    arrays: list[tuple[Stored, tuple[int, ...]]] = []
    failures: list[tuple[Failure, tuple[int, ...]]] = []
    kept: list[tuple[Place, tuple[int, ...]]] = []


# ---- out


def load_what_cannot_stay(sessions: Sessions) -> None:
    """Has in memory the arrays of sessions that nobody came for, where what they share with kept trees is kept no more.

    Before anything is written: what is read is not on the disk any more, and kept trees may be among it.
    """
    for session in sessions.all():
        with contextlib.suppress(ArrayLost):  # `save` meets it too, and says so
            session.stays_away()


def save_all(address: str, sessions: Sessions, deadline: float, kept: Mapping[int, Place]) -> None:
    """Leaves all sessions, which are frozen, for the next daemon at an address; without what it finds `kept` there."""
    left = sessions.all()
    if not left:
        return
    try:
        where = leaving.folder_of(address)
    except (SettingsError, OSError) as error:
        log.warning("%d sessions are lost: they cannot be written: %s", len(left), error)
        return
    for session in left:
        save(where, session, deadline, kept)


def save(where: Path, session: Session, deadline: float, kept: Mapping[int, Place]) -> None:
    """Leaves a frozen session for the next daemon, as far as there is room and time. It owns no arrays any more."""
    try:
        if session.stays_away():  # nobody came for it since it was written
            return
    except ArrayLost as error:
        log.warning("a session is lost: %s", error)
        return
    state, arrays = session.leave_behind()
    count = len(arrays)
    path = where / session.token.hex()
    fresh = path.with_suffix(array_file.UNFINISHED)
    try:
        with open(fresh, "wb", buffering=0, opener=_private) as file:  # what does not fit is known at once
            record = Record(state)
            _save_arrays(file, record, arrays, deadline, kept)
            _finish(file, record)
        fresh.rename(path)
        log.info("the session of process %d is left for the next daemon, with %d arrays", session.pid, count)
    except OSError as error:
        log.warning("a session of %d arrays is lost: it cannot be written: %s", count, error)
        with contextlib.suppress(OSError):
            fresh.unlink()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _save_arrays(
    file: BinaryIO, record: Record, arrays: dict[int, Any], deadline: float, kept: Mapping[int, Place]
) -> None:
    handles: dict[int, list[int]] = {}
    for handle, value in arrays.items():
        handles.setdefault(id(value), []).append(handle)
    left = list({id(value): value for value in arrays.values()}.values())
    arrays.clear()
    left.sort(key=_nbytes, reverse=True)
    while left:
        value = left.pop()  # and nobody has it any more once it is written: memory is freed on the way
        names = tuple(handles[id(value)])
        if isinstance(value, Failed):
            record.failures.append((value.failure, names))
            continue
        if id(value) in kept:
            record.kept.append((kept[id(value)], names))
            continue
        try:
            record.arrays.append((spilling.write(file, value, deadline), names))
        except Exception as error:  # what computes it may have failed, for whatever reason
            record.failures.append((failure_of(_why_not(value, error)), names))


def _nbytes(value: Any) -> int:
    return 0 if isinstance(value, Failed) or value.is_deleted() else value.nbytes


def _why_not(value: Any, error: Exception) -> Exception:
    if value.is_deleted():
        return RuntimeError(f"Array has been deleted with shape={value.dtype.name}{list(value.shape)}.")
    if isinstance(error, TimeoutError):
        return ArrayLost("the daemon restarted, and had no time left to write this array to the disk")
    return _no_room(error) if isinstance(error, OSError) else error


def _finish(file: BinaryIO, record: Record) -> None:
    while True:
        try:
            file.seek(0, os.SEEK_END)
            return spilling.write_all(file, memoryview(array_file.end_of(record, _MARK)))
        except OSError as error:
            if not record.arrays:
                raise
            stored, names = record.arrays.pop()  # the last and largest one makes room
            record.failures.append((failure_of(_no_room(error)), names))
            file.truncate(stored.start)


def _no_room(error: OSError) -> Exception:
    return ArrayLost(f"the daemon restarted, and could not write this array to the disk: {error}")


# ---- back


def take_all_back(address: str, sessions: Sessions, entry_of: EntryOf, kept: Kept) -> None:
    """Goes on with what the daemon before left at an address, where `kept` has been taken back."""
    try:
        found, lost = taken_back(leaving.folder_of(address), entry_of, kept)
    except (SettingsError, OSError) as error:
        log.warning("no session of the daemon before can be taken back: %s", error)
    else:
        sessions.take_back(found, lost)


def taken_back(where: Path, entry_of: EntryOf, kept: Kept) -> tuple[list[Session], dict[bytes, str]]:
    """The sessions that the daemon before left, whose clients still live; and those that are lost, with the reason.

    Their arrays are read when their clients come for them.
    """
    sessions, lost = [], {}
    for path, found in _found(where):
        if isinstance(found, str):
            with contextlib.suppress(ValueError):  # it was no file of ours
                lost[bytes.fromhex(path.name)] = found
            continue
        session = Session.taken_back(found.state, _Away(path, found, kept), entry_of)
        if session.is_orphaned():
            log.info("the session of process %d is not taken back: it has ended", session.pid)
            session.end()
        else:
            sessions.append(session)
    return sessions, lost


def _found(where: Path) -> Iterator[tuple[Path, Record | str]]:
    for path in sorted(where.iterdir()):
        if path.suffix == array_file.UNFINISHED:
            path.unlink(missing_ok=True)
            continue
        try:
            yield path, array_file.record_in(path, Record, _MARK)
        except (Damaged, OSError) as error:
            log.warning("a session that the daemon before left is lost: %s: %s", path, error)
            path.unlink(missing_ok=True)
            yield path, f"the daemon restarted, and the file of this session is damaged: {error}"


class _Away:
    """The arrays of a session in its file, and in those of kept trees."""

    def __init__(self, path: Path, record: Record, kept: Kept) -> None:
        self._path = path
        self._record = record
        self._kept = kept
        self._lock = threading.Lock()
        self._expected = [(place, kept.expect(place[0], place[1]), handles) for place, handles in record.kept]

    @property
    def can_stay(self) -> bool:
        """Whether another daemon may have them from there: all that is kept is still kept under those names."""
        return all(tree is None or self._kept.holds(place[0], tree) for place, tree, _ in self._expected)

    def load(self) -> dict[int, Any]:
        """Has them back, by handle; the file is gone then.

        Raises:
            ArrayLost: the file cannot be read.
        """
        begun = time.monotonic()
        found: dict[int, Any] = {}
        try:
            with open(self._path, "rb") as file:
                for stored, handles in self._record.arrays:
                    found |= dict.fromkeys(handles, _loaded(file, stored))
        except OSError as error:
            raise ArrayLost(f"the daemon restarted, and cannot read what it left on the disk: {error}") from error
        for failure, handles in self._record.failures:
            found |= dict.fromkeys(handles, Failed(failure))
        for (name, _, leaf), tree, handles in self._expected:
            found |= dict.fromkeys(handles, self._kept_array(name, tree, leaf))
        self.discard()
        log.info("a session is back with %d arrays, after %.2f s", len(found), time.monotonic() - begun)
        return found

    def _kept_array(self, name: str, tree: KeptTree | None, leaf: int) -> Any:
        if tree is not None and self._kept.load(name, tree):
            return tree.arrays[leaf]
        return Failed(failure_of(ArrayLost(f"the daemon restarted, and could not have back what was kept as {name!r}")))

    def discard(self) -> None:
        """Removes the file."""
        with self._lock:  # its client may come back at the moment at which it is given up
            expected, self._expected = self._expected, []
        for _, tree, _ in expected:
            if tree is not None:
                self._kept.came_for(tree)
        with contextlib.suppress(OSError):
            self._path.unlink()


def _loaded(file: BinaryIO, stored: Stored) -> Any:
    try:
        return spilling.read(file, stored)
    except OSError:
        raise
    except Exception as error:  # it is damaged, or there is no such device or memory any more
        log.warning("an array of a session is lost: %s", error)
        lost = ArrayLost(f"the daemon restarted, and could not have this array back: {error}")
        lost.__cause__ = error
        return Failed(failure_of(lost))
