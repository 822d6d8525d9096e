"""The crash journal: what each thread of a daemon is at, written where it outlives the daemon.

It is a file mapped into memory, with a slot for each thread: to write there takes no system call, and the kernel keeps
what was written however the process ends. The file is locked for as long as its daemon lives, and goes when the daemon
means to end. So a file that is there and not locked tells of a crash, and the next daemon gives a strike to each
program in it.
"""

import contextlib
import fcntl
import hashlib
import logging
import mmap
import os
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from jitserver.crashes.strikes import Strikes, Work

log = logging.getLogger(__name__)

SLOT = 128
_SLOTS = 2048
_CHECK = 5  # a slot is: whether something is under way, four bytes that check the rest, the rest
NOTHING = bytes(SLOT)


def mark(phase: str, key: str, label: str) -> bytes:
    """What a slot holds while a thread is at that phase of a program."""
    text = f"{phase} {key} {label}".encode(errors="replace")[: SLOT - _CHECK].ljust(SLOT - _CHECK, b"\0")
    return b"\1" + zlib.crc32(text).to_bytes(4, "big") + text


def read(slot: bytes) -> Work | None:
    """What a thread was at; None where it was at nothing, or died while it wrote that down."""
    text = slot[_CHECK:]
    if not slot[0] or zlib.crc32(text).to_bytes(4, "big") != slot[1:_CHECK]:
        return None
    words = text.rstrip(b"\0").decode(errors="ignore").split(" ", 2)
    return Work(*words) if len(words) == 3 else None


class Journal:
    """What the threads of this daemon are at. Without a file, for as long as it lives.

    Attributes:
        here: `here.slot` is this thread's own slot.
        lasts: whether what it holds outlives a crash.
        strikes: what earlier crashes left.
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
        """Counts who died, and begins the journal of this daemon, which lives as long as the process.

        Args:
            folder: of journals; best in memory, where the kernel never has a thread wait for a disk.
            part: the part of the cache whose programs they name; the strikes are kept there.
        """
        strikes = Strikes(part)
        stem = hashlib.blake2b(os.fsencode(part), digest_size=6).hexdigest()
        try:
            _count_dead(folder, stem, strikes)
            path, memory = _new(folder, stem)
        except OSError as error:
            log.warning("no crash journal: %s", error)
            return cls(strikes)
        return cls(strikes, path, memory)

    def end(self) -> None:
        """The daemon means to end: whatever it is at from now on is not to blame."""
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()

    @contextlib.contextmanager
    def noted(self, phase: str, key: str, label: str) -> Iterator[Callable[[str], None]]:
        """Notes what this thread does to a program. Each phase that ends, also by an exception, is forgiven.

        Args:
            phase: "tracing", "compiling", ...: what it ends "while" it does.
            key: the program's.
            label: what people call the program.

        Returns:
            What to call with the next phase, when this one is over.

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
    """Gives each thread that asks a slot, which it has until it ends."""

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
        except IndexError:  # with so many threads, this one goes unnoted
            self.slot = memoryview(bytearray(SLOT))

    def __del__(self) -> None:
        if self._start is not None:
            self._free.append(self._start)


def _new(folder: Path, stem: str) -> tuple[Path, memoryview]:
    """A journal of our own. Others see it only once it is locked."""
    number, name = tempfile.mkstemp(".new", f"{stem}-", folder)
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        with open(number, "wb", closefd=False) as file:
            file.write(NOTHING * _SLOTS)  # a disk that is full must be met now: met by a write to memory, it kills
        memory = memoryview(mmap.mmap(number, SLOT * _SLOTS))  # holds the file open, and so the lock
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
                continue  # another daemon was quicker
            data = file.read()
            slots = (data[start : start + SLOT] for start in range(0, len(data) - SLOT + 1, SLOT))
            died = [work for work in map(read, slots) if work is not None]
            # Where strikes cannot be kept, the file is: each daemon to come counts it again.
            if not died or strikes.add(died, time.time()):
                path.unlink(missing_ok=True)
