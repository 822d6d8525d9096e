"""The crash journal: a file that survives the daemon and records the current activity of each of its threads.

The file is mapped into memory, with a slot for each thread, and for each program that may still be computing after its
call returned (`jitserver/programs/devices/in_flight.py`). A write takes no system call, and the kernel keeps it
however the process exits. The file is locked as long as its daemon lives, and deleted on a regular shutdown. An
existing file without a lock therefore means that its daemon died, and the next daemon gives a strike to each program
in it. The crash report beside it says whether the daemon crashed or was killed.
"""

import contextlib
import functools
import logging
import mmap
import os
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from jitclient.core import file_lock
from jitclient.core.digests import digest
from jitserver.store.crash_report import CrashReport, cause_of_death
from jitserver.store.strikes import Strikes, Work

log = logging.getLogger(__name__)

SLOT = 128
_SLOTS = 2048
# Layout of a slot: one byte (in progress or not), four bytes (checksum of the text), the text.
_CHECK = 5
EMPTY_SLOT = bytes(SLOT)


def mark(phase: str, key: str, label: str) -> bytes:
    """Return the content of a slot while its thread is in a phase of a program."""
    text = f"{phase} {key} {label}".encode(errors="replace")[: SLOT - _CHECK].ljust(SLOT - _CHECK, b"\0")
    return b"\1" + zlib.crc32(text).to_bytes(4, "big") + text


def read(slot: bytes) -> Work | None:
    """Return the work recorded in a slot; None if the thread was idle, or died while writing the slot."""
    text = slot[_CHECK:]
    if not slot[0] or zlib.crc32(text).to_bytes(4, "big") != slot[1:_CHECK]:
        return None
    words = text.rstrip(b"\0").decode(errors="ignore").split(" ", 2)
    return Work(*words) if len(words) == 3 else None


class Journal:
    """The current activity of each thread of this daemon. Without a file, the record does not survive a crash.

    Attributes:
        lease_slot: returns the lease of an empty slot. Its owner empties the slot before it drops the lease.
        thread_state: `thread_state.slot` is the slot of the current thread.
        is_persistent: whether the record survives a crash.
        strikes: the strikes from earlier crashes.
    """

    def __init__(
        self,
        strikes: Strikes | None = None,
        path: Path | None = None,
        memory: memoryview | None = None,
        report: CrashReport | None = None,
    ) -> None:
        self.strikes = strikes or Strikes()
        slots = memory if memory is not None else memoryview(b"")
        # A partial, because a bound method would keep the journal, and with it the file's lock, in a reference cycle.
        self.lease_slot = functools.partial(SlotLease, slots, list(range(len(slots) - SLOT, -1, -SLOT)))
        self.thread_state = _OwnSlot(self.lease_slot)
        self._path = path
        self._report = report
        self.is_persistent = path is not None

    @classmethod
    def create(cls, directory: Path, cache_directory: Path, memory_kills: int = 0) -> "Journal":
        """Count the crashes of earlier daemons, and create the journal of this process.

        Args:
            directory: the directory of journals; best in memory (tmpfs), so that no thread ever waits for a disk.
            cache_directory: the cache directory of this environment, which also contains the strikes.
            memory_kills: the number of processes that the kernel has killed for lack of memory.

        Returns:
            The journal; without a file, after a warning, if the file cannot be created.
        """
        strikes = Strikes(cache_directory)
        stem = _stem(cache_directory)
        try:
            _count_deaths(directory, stem, strikes, memory_kills)
            path, memory, report = _new(directory, stem, memory_kills)
        except OSError as error:
            log.warning("crash journal: cannot be created (%s). Crashes of this daemon cause no strikes.", error)
            return cls(strikes)
        return cls(strikes, path, memory, report)

    def report_crashes(self) -> None:
        """Write the stacks of all threads into the crash report when a fatal signal arrives."""
        if self._report is not None:
            self._report.enable()

    def end(self) -> None:
        """Record a regular shutdown by deleting the files: no program gets a strike from now on."""
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()
        if self._report is not None:
            self._report.remove()

    @contextlib.contextmanager
    def recording(self, phase: str, key: str, label: str) -> Iterator[Callable[[str], None]]:
        """Record this thread's activity while the context is open.

        When a phase ends, even by an exception, the program's strikes for that phase are removed.

        Args:
            phase: "tracing", "compiling", ...
            key: the call key of the program.
            label: the program's description in messages.

        Yields:
            A function to call with the name of the next phase, when the current phase ends.

        Example:
            >>> with journal.recording("tracing", key, label) as next_phase:
            ...     traced = trace()
            ...     next_phase("compiling")
            ...     compiled = traced.compile()
        """
        slot = self.thread_state.slot
        before = bytes(slot)

        def next_phase(following: str) -> None:
            nonlocal phase
            ended, phase = phase, following
            slot[:] = mark(phase, key, label)
            self.strikes.forgive(key, ended)

        slot[:] = mark(phase, key, label)
        try:
            yield next_phase
        finally:
            slot[:] = before
            self.strikes.forgive(key, phase)


class _OwnSlot(threading.local):
    """The slot of the current thread, which the thread owns until it exits."""

    def __init__(self, lease_slot: Callable[[], "SlotLease"]) -> None:
        self._lease = lease_slot()
        self.slot = self._lease.slot


class SlotLease:
    """A slot of the journal, which is free again after the lease is dropped."""

    def __init__(self, memory: memoryview, free: list[int]) -> None:
        self._free = free
        self._start: int | None = None
        try:
            self._start = free.pop()
            self.slot = memory[self._start : self._start + SLOT]
        # No slot is left: this activity is not recorded in the file.
        except IndexError:
            self.slot = memoryview(bytearray(SLOT))

    def __del__(self) -> None:
        if self._start is not None:
            self._free.append(self._start)


def is_in_use(directory: Path, cache_directory: Path) -> bool:
    """Return whether a live daemon uses a cache directory, according to the journals in a directory."""
    for path in directory.glob(f"{_stem(cache_directory)}-*.journal"):
        with contextlib.suppress(OSError), open(path, "rb") as file:
            if not file_lock.try_lock(file, shared=True):
                return True
    return False


def _stem(cache_directory: Path) -> str:
    """Return how the names of the journals of a cache directory begin."""
    return digest(os.fsencode(cache_directory), 6).hex()


def _new(directory: Path, stem: str, memory_kills: int) -> tuple[Path, memoryview, CrashReport]:
    """Create a locked journal. Other processes see it only after it is locked, because the rename comes last."""
    number, name = tempfile.mkstemp(".new", f"{stem}-", directory)
    try:
        file_lock.lock(number)
        with open(number, "wb", closefd=False) as file:
            # Allocate the disk space now: on a full disk, a later write to the mapped memory would kill the process.
            file.write(EMPTY_SLOT * _SLOTS)
        # The mapping keeps the file open and locked after the file descriptor is closed.
        memory = memoryview(mmap.mmap(number, SLOT * _SLOTS))
        path = Path(name).with_suffix(".journal")
        report = CrashReport(_report_of(path), memory_kills)
        os.rename(name, path)
    except BaseException:
        os.unlink(name)
        raise
    finally:
        os.close(number)
    return path, memory, report


def _report_of(journal: Path) -> Path:
    """Return the path of the crash report beside a journal."""
    return journal.with_suffix(".crash")


def _count_deaths(directory: Path, stem: str, strikes: Strikes, memory_kills: int) -> None:
    for path in directory.glob(f"{stem}-*.journal"):
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
            # Without links, another daemon has already counted it.
            if not file_lock.try_lock(file) or not os.fstat(file.fileno()).st_nlink:
                continue
            data = file.read()
            slots = (data[start : start + SLOT] for start in range(0, len(data) - SLOT + 1, SLOT))
            interrupted = [work for work in map(read, slots) if work is not None]
            cause = cause_of_death(_report_of(path), memory_kills)
            if cause:
                log.warning("a daemon of this environment crashed: %s", cause)
            # If the strikes cannot be saved, keep the files: the next daemon counts them again.
            if not interrupted or strikes.add(interrupted, time.time(), killed=not cause):
                path.unlink(missing_ok=True)
                _report_of(path).unlink(missing_ok=True)
