"""The lab's cache as a tier: asked after the local ones, filled behind the calls, and never in anybody's way.

Nothing here raises. A storage that is slow, full, forbidden or gone costs one note in the log, and is left alone for a
minute. Entries that cannot be used are misses, counted by the reason.
"""

import collections
import getpass
import logging
import platform
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from jitclient.wire.messages import ShareStatus
from jitserver.store.checked_files import Corrupt, unpacked
from jitserver.store.deadline import Deadlines
from jitserver.store.entry import Stored
from jitserver.store.share import entries, signing
from jitserver.store.share.entries import Names
from jitserver.store.share.objects import Objects
from jitserver.store.share.options import Options
from jitserver.store.share.signing import Rejected

log = logging.getLogger(__name__)

MIN_SECONDS = 1.0
"""A program that took less to make is not shared: asking for it would take as long."""

MAX_ENTRY_BYTES = 1 << 30
_MAX_NAMES_BYTES = 1 << 20
_MAX_LISTS = 8
_READ_SECONDS = 2.0
"""Deadline of a look-up, for which a call waits."""
_WRITE_SECONDS = 120.0
_PAUSE_SECONDS = 60.0

Result = TypeVar("Result")


class Share:
    """Programs of all machines of a project, by call key. Thread-safe."""

    def __init__(self, options: Options, objects: Objects | None = None) -> None:
        """Connect to the storage; the first look-up or upload is the first contact.

        Raises:
            SettingsError: a library for the storage is not installed.
        """
        self.options = options
        self.objects = Objects(options.url) if objects is None else objects
        self._deadlines = Deadlines()
        self._lock = threading.Lock()
        self._off_until = 0.0
        self._why_off = ""
        self._counts: collections.Counter[str] = collections.Counter()
        self._rejected: collections.Counter[str] = collections.Counter()
        self._bad: set[str] = set()  # names of entries that were rejected: they may be replaced

    # ---- reading

    def lists_of(self, base: str) -> dict[tuple[str, ...], float]:
        """Return the lists of names in the manifests of a base key, with the seconds that making a program took."""
        found: dict[tuple[str, ...], float] = {}

        def read() -> None:
            for number in range(_MAX_LISTS):
                listed = self._names(entries.names_name(base, number))
                if listed is None:
                    return
                found[listed.names] = listed.seconds

        self._attempt(read, _READ_SECONDS, None)
        if not found:
            self._count("missed")
        return dict(found)

    def get(self, key: str, seconds: float) -> tuple[Stored, bytes] | None:
        """Return a program with its executable, or None.

        Args:
            key: the call key.
            seconds: the time that making the program would take, half of which its download may take.
        """
        name = entries.program_name(key)
        deadline = max(_READ_SECONDS, seconds / 2)
        payload = self._attempt(lambda: self._verified(name, MAX_ENTRY_BYTES), deadline, None)
        if payload is None:
            self._count("missed")
            return None
        try:
            stored, shared = entries.decoded(payload)
            if stored.info.key != key:
                raise Corrupt("it has another key")
        except Corrupt as error:
            self._reject(name, "version", str(error))
            return None
        stored.info.last_used = time.time()
        return stored, shared.executable

    def loaded(self, stored: Stored) -> None:
        """Count a program that was found."""
        self._count("found")
        with self._lock:
            self._counts["saved"] += round(1000 * sum(stored.info.seconds.values()))

    def reject(self, key: str, why: str) -> None:
        """Count a program that cannot be loaded on this machine."""
        self._reject(entries.program_name(key), "cannot be loaded here", why)

    # ---- writing

    def put(self, stored: Stored, executable: bytes) -> bool:
        """Upload a program that took long enough to make, unless it is there; return whether it was uploaded."""
        if not (self.options.writes and executable and sum(stored.info.seconds.values()) >= MIN_SECONDS):
            return False
        return bool(self._attempt(lambda: self._upload(stored, executable), _WRITE_SECONDS, False))

    def _upload(self, stored: Stored, executable: bytes) -> bool:
        key, info = self.options.key, stored.info
        name = entries.program_name(info.key)
        is_new = name in self._bad or not self.objects.has(name)
        if is_new:
            self.objects.put(name, signing.signed(key, name, entries.encoded(stored, executable, _member())))
            self._bad.discard(name)
            self._count("uploaded")
        # The program first: who finds its names may ask for it at once.
        names = Names(info.names, sum(info.seconds.values()))
        for number in range(_MAX_LISTS):
            name = entries.names_name(info.base or info.key, number)
            there = self._names(name)
            if there is not None and there.names == info.names:
                break
            entry = signing.signed(key, name, entries.encoded_names(names))
            if there is None and name in self._bad:
                self.objects.put(name, entry)
                self._bad.discard(name)
                break
            if there is None and self.objects.create(name, entry):
                break
        return is_new

    # ---- inside

    def _names(self, name: str) -> Names | None:
        payload = self._verified(name, _MAX_NAMES_BYTES)
        try:
            return None if payload is None else unpacked(payload, Names)
        except Corrupt as error:
            self._reject(name, "version", str(error))
            return None

    def _verified(self, name: str, max_bytes: int) -> memoryview | None:
        entry = self.objects.get(name, max_bytes)
        if entry is None:
            return None
        try:
            return signing.verified(self.options.key, name, entry)
        except Rejected as error:
            self._reject(name, str(error), "no member of the project has written it under this name")
            return None

    def _reject(self, name: str, reason: str, why: str) -> None:
        log.warning("lab's cache: %s is not used (%s: %s)", name, reason, why)
        with self._lock:
            self._rejected[reason] += 1
            self._bad.add(name)

    def _count(self, what: str) -> None:
        with self._lock:
            self._counts[what] += 1

    def _attempt(self, act: Callable[[], Result], seconds: float, otherwise: Result) -> Result:
        if time.monotonic() < self._off_until:
            return otherwise
        try:
            done = self._deadlines.run(act, seconds)
        # Each kind of storage has exceptions of its own.
        except Exception as error:
            self._pause(error)
            return otherwise
        if self._why_off:
            log.info("lab's cache: %s works again", self.options.url)
            self._why_off = ""
        return done

    def _pause(self, error: Exception) -> None:
        why = f"{type(error).__name__}: {error}"
        with self._lock:
            is_new, self._why_off = not self._why_off, why
            self._off_until = time.monotonic() + _PAUSE_SECONDS
        if is_new:
            log.warning("lab's cache: cannot use %s (%s). It is tried again each minute.", self.options.url, why)

    def status(self) -> ShareStatus:
        """Return the counts since the start of this process."""
        with self._lock:
            counts = self._counts
            return ShareStatus(
                self.options.url,
                self.options.writes,
                counts["found"],
                counts["missed"],
                counts["uploaded"],
                counts["saved"] / 1000,
                dict(self._rejected),
                self._why_off,
            )


def _member() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container that does not know the user id
        user = "?"
    return f"{user}@{platform.node()}"
