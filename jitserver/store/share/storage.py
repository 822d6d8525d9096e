"""Signed objects on a storage that may fail: nothing here raises, and no caller waits longer than its deadline.

A storage that is slow, full or gone costs one note in the log, and is left alone for a minute. Entries that cannot be
used, or may not be read, count as missing, and are counted by the reason.
"""

import collections
import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from jitserver.store.deadline import Deadlines
from jitserver.store.share import signing
from jitserver.store.share.objects import Objects
from jitserver.store.share.options import LabOptions
from jitserver.store.share.signing import Rejected

log = logging.getLogger(__name__)

READ_SECONDS = 2.0
"""Deadline of what a call waits for."""
WRITE_SECONDS = 120.0
_PAUSE_SECONDS = 60.0
_FORBIDDEN = "forbidden"

Result = TypeVar("Result")


class Storage:
    """The entries of one project on a storage. Thread-safe."""

    def __init__(self, options: LabOptions, connected: Callable[[str], Objects] = Objects) -> None:
        """Connect to nothing yet.

        Args:
            options: where the storage is.
            connected: returns the objects under a URL. It may take seconds, for the imports of the storage's library.
        """
        self.options = options
        self._connected = connected
        self._connecting = threading.Lock()
        self._there: Objects | None = None
        self._deadlines = Deadlines()
        self._lock = threading.Lock()
        self._off_until = 0.0
        self._rejected: collections.Counter[str] = collections.Counter()
        self._bad: set[str] = set()  # names of entries that were rejected: they may be replaced
        self.forbidden: set[str] = set()
        """Names of entries that this member may not read."""
        self.why_off = ""
        """Why the storage is left alone for the moment; empty if it is not."""

    def connect(self) -> None:
        """Connect, so that the first look-up need not: libraries load more at their first request."""
        self._attempt(lambda: self._objects().has("jitserver"), WRITE_SECONDS, False)

    @property
    def rejected(self) -> dict[str, int]:
        """How many entries were rejected, by reason."""
        with self._lock:
            return dict(self._rejected)

    def get(self, name: str, max_bytes: int, seconds: float = READ_SECONDS) -> memoryview | None:
        """Return the verified payload of an entry, or None.

        A storage that hangs is noticed after `READ_SECONDS`, however long the download may take.
        """
        if seconds > READ_SECONDS and not self._read(name, lambda: self._objects().has(name), READ_SECONDS, False):
            return None
        entry = self._read(name, lambda: self._objects().get(name, max_bytes), seconds, None)
        if entry is None:
            return None
        try:
            return signing.verified(self.options.key, name, entry)
        except Rejected as error:
            self.reject(name, str(error), "no member of the project has written it under this name")
            return None

    def put(self, name: str, payload: bytes) -> bool:
        """Write an entry, which replaces one of that name; return whether it was written."""

        def act() -> bool:
            self._objects().put(name, signing.signed(self.options.key, name, payload))
            self._bad.discard(name)
            return True

        return self._attempt(act, WRITE_SECONDS, False)

    def has(self, name: str) -> bool:
        """Return whether there is an entry of a name that was not rejected."""
        return name not in self._bad and self._read(name, lambda: self._objects().has(name), READ_SECONDS, False)

    def reject(self, name: str, reason: str, why: str) -> None:
        """Count an entry that cannot be used, and let it be replaced."""
        log.warning("lab's cache: %s is not used (%s: %s)", name, reason, why)
        with self._lock:
            self._rejected[reason] += 1
            self._bad.add(name)

    def _objects(self) -> Objects:
        with self._connecting:
            if self._there is None:
                self._there = self._connected(self.options.url)
            return self._there

    def _read(self, name: str, act: Callable[[], Result], seconds: float, otherwise: Result) -> Result:
        def allowed() -> Result:
            try:
                return act()
            except PermissionError as error:  # others may be allowed: members write files with their own umask
                self._note_forbidden(name, error)
                return otherwise

        return self._attempt(allowed, seconds, otherwise)

    def _attempt(self, act: Callable[[], Result], seconds: float, otherwise: Result) -> Result:
        if time.monotonic() < self._off_until:
            return otherwise
        try:
            done = self._deadlines.run(act, seconds)
        # Each kind of storage has exceptions of its own.
        except Exception as error:
            self._pause(error)
            return otherwise
        if self.why_off:
            log.info("lab's cache: %s works again", self.options.url)
            self.why_off = ""
        return done

    def _note_forbidden(self, name: str, error: PermissionError) -> None:
        with self._lock:
            self.forbidden.add(name)
            is_first = not self._rejected[_FORBIDDEN]
            self._rejected[_FORBIDDEN] += 1
        if is_first:
            log.warning("lab's cache: %s forbids something (%s). What it forbids is missing.", self.options.url, error)

    def _pause(self, error: Exception) -> None:
        why = f"{type(error).__name__}: {error}"
        with self._lock:
            is_new, self.why_off = not self.why_off, why
            self._off_until = time.monotonic() + _PAUSE_SECONDS
        if is_new:
            log.warning("lab's cache: cannot use %s (%s). It is tried again each minute.", self.options.url, why)
