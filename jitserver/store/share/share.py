"""The lab's cache as a tier: asked after the local ones, and filled behind the calls."""

import collections
import getpass
import logging
import platform
import threading
import time
from collections.abc import Callable

from jitclient.wire.introspection import ShareStatus
from jitserver.store.checked_files import Corrupt, unpacked
from jitserver.store.entry import Stored
from jitserver.store.share import entries
from jitserver.store.share.entries import Names
from jitserver.store.share.storage import READ_SECONDS, Storage

log = logging.getLogger(__name__)

MIN_SECONDS = 0.3
"""A program that took less to make is not shared: asking for it would take as long."""

MAX_ENTRY_BYTES = 1 << 30
_DOWNLOAD_SECONDS = 30.0
_MAX_LISTS = 8
_MAX_NAMES_BYTES = _MAX_LISTS << 20


class Share:
    """Programs of all machines of a project, by call key. Thread-safe."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._lock = threading.Lock()
        self._counts: collections.Counter[str] = collections.Counter()
        self._seconds_saved = 0.0

    # ---- reading

    def lists_of(self, base: str) -> dict[tuple[str, ...], float]:
        """Return the lists of names in manifests, with the seconds that making a program took, by portable base key."""
        found = {each.names: each.seconds for each in self._lists(base)}
        if not found:
            self._count("missed")
        return found

    def get(self, key: str, seconds: float) -> tuple[Stored, bytes] | None:
        """Return a program with its executable, or None.

        Args:
            key: the call key.
            seconds: the time that making the program would take, half of which its download may take.
        """
        found = self._program(entries.program_name(key), seconds)
        if found is None:
            self._count("missed")
        return found

    def get_trace(self, portable_key: str, seconds: float) -> tuple[Stored, bytes] | None:
        """Return a program of another kind of machine with its trace, or None; see `get`."""
        return self._program(entries.trace_name(portable_key), seconds)

    def get_compilation(self, text_key: str) -> tuple[bytes, float] | None:
        """Return the executable of a key of a program's text and of this kind of machine, with its seconds, or None."""
        name = entries.compilation_name(text_key)
        # A rejected one would be read again.
        found = self.storage.get(name, MAX_ENTRY_BYTES, _DOWNLOAD_SECONDS) if self.storage.has(name) else None
        if found is None or len(found) <= entries.SECONDS.size:
            return None
        seconds: float = entries.SECONDS.unpack_from(found)[0]
        self.count_found(seconds)
        return bytes(found[entries.SECONDS.size :]), seconds

    def has(self, key: str) -> bool:
        """Return whether there is a program of a call key."""
        return self.storage.has(entries.program_name(key))

    def has_trace(self, portable_key: str) -> bool:
        """Return whether there is a trace of a portable key."""
        return self.storage.has(entries.trace_name(portable_key))

    def count_found(self, seconds: float) -> None:
        """Count a program, or a compilation, that was found, and the seconds that this saved."""
        with self._lock:
            self._counts["found"] += 1
            self._seconds_saved += seconds

    def reject(self, key: str, why: str) -> None:
        """Count a program that cannot be loaded on this machine."""
        self.storage.reject(entries.program_name(key), "cannot be loaded here", why)

    def reject_trace(self, portable_key: str, why: str) -> None:
        """Count a trace that cannot be compiled on this machine."""
        self.storage.reject(entries.trace_name(portable_key), "cannot be compiled here", why)

    # ---- writing

    def put(self, stored: Stored, executable: bytes, trace: Callable[[], bytes] = bytes) -> bool:
        """Upload what of a program took long enough to make, unless it is there.

        Args:
            stored: the program.
            executable: its executable; empty if there is none.
            trace: serializes its trace; returns nothing if that is impossible.

        Returns:
            Whether its executable was uploaded.
        """
        info = stored.info
        seconds = sum(info.seconds.values())
        if not self.storage.options.writes or seconds < MIN_SECONDS:
            return False
        is_new = bool(executable) and not self.has(info.key)
        if is_new and not self._upload(entries.program_name(info.key), stored, executable, seconds):
            return False
        # The programs first: who finds their names may ask for them at once. A trace may take long to serialize.
        base, names = stored.components.portable_base, Names(info.names, seconds)
        if executable:
            self._list(base, names)
        if self._put_trace(stored, seconds - info.seconds.get("compile", 0.0), trace) and not executable:
            self._list(base, names)
        return is_new

    def put_compilation(self, text_key: str, executable: bytes, seconds: float) -> None:
        """Upload an executable, see `get_compilation`, if it took long enough to compile."""
        if self.storage.options.writes and seconds >= MIN_SECONDS:
            self.storage.put(entries.compilation_name(text_key), entries.SECONDS.pack(seconds) + executable)

    def _put_trace(self, stored: Stored, seconds: float, trace: Callable[[], bytes]) -> bool:
        key = stored.components.portable_key
        if seconds < MIN_SECONDS or self.has_trace(key):
            return seconds >= MIN_SECONDS
        code = trace()
        return bool(code) and self._upload(entries.trace_name(key), stored, code, seconds)

    def _upload(self, name: str, stored: Stored, code: bytes, seconds: float) -> bool:
        is_done = self.storage.put(name, entries.encoded(stored, code, member(), seconds))
        if is_done:
            self._count("uploaded")
        return is_done

    def _list(self, base: str, names: Names) -> None:
        lists = self._lists(base)
        if entries.names_name(base) not in self.storage.forbidden and all(each.names != names.names for each in lists):
            self.storage.put(entries.names_name(base), entries.encoded_names([*lists, names][-_MAX_LISTS:]))

    # ---- inside

    def _program(self, name: str, seconds: float) -> tuple[Stored, bytes] | None:
        payload = self.storage.get(name, MAX_ENTRY_BYTES, max(READ_SECONDS, seconds / 2))
        if payload is None:
            return None
        try:
            stored, shared = entries.decoded(payload)
            if name not in entries.names_of(stored):
                raise Corrupt("it has another key")
        except Corrupt as error:
            self.storage.reject(name, "version", str(error))
            return None
        stored.info.last_used = time.time()
        return stored, shared.code

    def _lists(self, base: str) -> list[Names]:
        name = entries.names_name(base)
        payload = self.storage.get(name, _MAX_NAMES_BYTES)
        try:
            return [] if payload is None else unpacked(payload, list[Names])
        except Corrupt as error:
            self.storage.reject(name, "version", str(error))
            return []

    def _count(self, what: str) -> None:
        with self._lock:
            self._counts[what] += 1

    def status(self) -> ShareStatus:
        """Return the counts since the start of this process."""
        options, counts = self.storage.options, self._counts
        return ShareStatus(
            options.url,
            options.writes,
            counts["found"],
            counts["missed"],
            counts["uploaded"],
            self._seconds_saved,
            self.storage.rejected,
            self.storage.why_off,
        )


def member() -> str:
    """Return a name for this user on this machine, for people."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container that does not know the user id
        user = "?"
    return f"{user}@{platform.node()}"
