"""The crash journal: what each thread of a daemon is doing, in a file that survives the daemon.

The file is mapped into memory, with a slot for each thread. A write takes no system call, and the kernel keeps it
however the process ends. The file is locked as long as its daemon lives, and removed on a regular shutdown. So an
existing file without a lock means a crash, and the next daemon gives a strike to each program in it.
"""

import contextlib
import fcntl
import logging
import mmap
import os
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from jitclient.core.digests import digest
from jitserver.store.strikes import Strikes, Work

log = logging.getLogger(__name__)

SLOT = 128
_SLOTS = 2048
_CHECK = 5  # a slot has: one byte (in progress or not), four bytes (checksum of the text), the text
NOTHING = bytes(SLOT)


def mark(phase: str, key: str, label: str) -> bytes:
    """The content of a slot while its thread is in a phase of a program."""
    text = f"{phase} {key} {label}".encode(errors="replace")[: SLOT - _CHECK].ljust(SLOT - _CHECK, b"\0")
    return b"\1" + zlib.crc32(text).to_bytes(4, "big") + text


def read(slot: bytes) -> Work | None:
    """What a thread was doing; None if it was idle, or died while it wrote the slot."""
    text = slot[_CHECK:]
    if not slot[0] or zlib.crc32(text).to_bytes(4, "big") != slot[1:_CHECK]:
        return None
    words = text.rstrip(b"\0").decode(errors="ignore").split(" ", 2)
    return Work(*words) if len(words) == 3 else None


class Journal:
    """What the threads of this daemon are doing. Without a file, it does not survive a crash.

    Attributes:
        here: `here.slot` is the slot of the current thread.
        lasts: whether it survives a crash.
        strikes: the strikes from earlier crashes.
    """

    def __init__(
        self, strikes: Strikes | None = None, path: Path | None = None, memory: memoryview | None = None
    ) -> None:
        self.strikes = strikes or Strikes()
        slots = memory if memory is not None else memoryview(b"")
        self.here = _Here(slots, list(range(len(slots) - SLOT, -1, -SLOT)))
        self._path = path
        self.lasts = path is not None

    @classmethod
    def begin(cls, folder: Path, part: Path) -> "Journal":
        """Counts earlier crashes, and begins the journal of this process.

        Args:
            folder: of journals; best in memory, so that no thread ever waits for a disk.
            part: the folder of the cache with these programs, which also has the strikes.
        """
        strikes = Strikes(part)
        stem = digest(os.fsencode(part), 6).hex()
        try:
            _count_dead(folder, stem, strikes)
            path, memory = _new(folder, stem)
        except OSError as error:
            log.warning("no crash journal: %s", error)
            return cls(strikes)
        return cls(strikes, path, memory)

    def end(self) -> None:
        """Marks a regular shutdown: no program gets a strike from now on."""
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()

    @contextlib.contextmanager
    def noted(self, phase: str, key: str, label: str) -> Iterator[Callable[[str], None]]:
        """Notes what this thread does with a program. When a phase ends, also by an exception, its strikes are removed.

        Args:
            phase: "tracing", "compiling", ...
            key: the call key of the program.
            label: describes the program for people.

        Returns:
            A function to call with the next phase, when this one ends.

        Example:
            >>> with journal.noted("tracing", key, label) as go_on:
            ...     traced = trace()
            ...     go_on("compiling")
            ...     compiled = traced.compile()
        """
        slot = self.here.slot
        before = bytes(slot)

        def go_on(following: str) -> None:
            nonlocal phase
            ended, phase = phase, following
            slot[:] = mark(phase, key, label)
            self.strikes.forgive(key, ended)

        slot[:] = mark(phase, key, label)
        try:
            yield go_on
        finally:
            slot[:] = before
            self.strikes.forgive(key, phase)


class _Here(threading.local):
    """Gives each thread a slot until the thread ends."""

    def __init__(self, memory: memoryview, free: list[int]) -> None:
        self._lease = _Lease(memory, free)
        self.slot = self._lease.slot


class _Lease:
    def __init__(self, memory: memoryview, free: list[int]) -> None:
        self._free = free
        self._start: int | None = None
        try:
            self._start = free.pop()
            self.slot = memory[self._start : self._start + SLOT]
        except IndexError:  # too many threads: this one is not noted
            self.slot = memoryview(bytearray(SLOT))

    def __del__(self) -> None:
        if self._start is not None:
            self._free.append(self._start)


def _new(folder: Path, stem: str) -> tuple[Path, memoryview]:
    """Makes a journal, which other processes see only once it is locked."""
    number, name = tempfile.mkstemp(".new", f"{stem}-", folder)
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        with open(number, "wb", closefd=False) as file:
            file.write(
                NOTHING * _SLOTS
            )  # finds a full disk now: later, a write to the mapped memory would kill the process
        memory = memoryview(mmap.mmap(number, SLOT * _SLOTS))  # keeps the file open and locked
        path = Path(name).with_suffix(".journal")
        os.rename(name, path)
    except BaseException:
        os.unlink(name)
        raise
    finally:
        os.close(number)
    return path, memory


def _count_dead(folder: Path, stem: str, strikes: Strikes) -> None:
    for path in folder.glob(f"{stem}-*.journal"):
        with contextlib.suppress(BlockingIOError, FileNotFoundError), open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.fstat(file.fileno()).st_nlink:
                continue  # another daemon counted it
            data = file.read()
            slots = (data[start : start + SLOT] for start in range(0, len(data) - SLOT + 1, SLOT))
            died = [work for work in map(read, slots) if work is not None]
            # If the strikes cannot be saved, the file stays, and the next daemon counts it again.
            if not died or strikes.add(died, time.time()):
                path.unlink(missing_ok=True)
