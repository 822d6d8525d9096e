"""Long compilations by the program's text, which the machines of a lab make once, also if they start together.

Before a machine compiles, it claims the compilation; others that want it meanwhile wait. Claims save work, and decide
nothing: a machine whose claim is not renewed counts as gone, and another compiles.
"""

import contextlib
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable

from jitclient.core.threads import Thread
from jitserver.store.share import entries
from jitserver.store.share.share import MAX_ENTRY_BYTES, MIN_SECONDS, Share, member
from jitserver.store.share.storage import READ_SECONDS

log = logging.getLogger(__name__)

_DOWNLOAD_SECONDS = 30.0
_POLL_SECONDS = 0.5
_RENEW_SECONDS = 5.0
_STALE_SECONDS = 20.0
"""Seconds without a renewal after which a claim is void, by the clock of the machine that waits."""
_MAX_WAIT_SECONDS = 3600.0
"""Seconds after which this machine compiles as well: the compiler of the other may hang."""
_MAX_CLAIM_BYTES = 4096


class SharedCompilations:
    """Executables by a key of the program's text and of this kind of machine. Thread-safe."""

    def __init__(self, share: Share, later: Callable[[str, Callable[[], object]], None]) -> None:
        """Claim nothing yet.

        Args:
            share: the lab's cache.
            later: schedules an upload under a key.
        """
        self._share, self._storage = share, share.storage
        self._later = later
        self._lock = threading.Lock()
        self._held: dict[str, bool] = {}  # by key of a claim: whether its upload is scheduled
        self._numbers = itertools.count()

    def get(self, key: str) -> tuple[bytes, float] | None:
        """Return the executable of a key with the seconds that it took; wait while another machine compiles it.

        If it returns None, this machine compiles, and must call `put` or `release`.
        """
        claim_name = entries.claim_name(key)
        seen: set[bytes] = set()  # who can write to the storage may write an earlier claim again
        since, is_mine = time.monotonic(), False
        end = since + _MAX_WAIT_SECONDS
        while True:
            found = self._found(key)
            if found is not None:
                if is_mine:  # another machine has finished after this one had looked, and before it claimed
                    self.release(key)
                return found
            if self._storage.why_off or is_mine or time.monotonic() > end:
                return None
            now = bytes(self._storage.get(claim_name, _MAX_CLAIM_BYTES) or b"")
            is_void = not now or (now in seen and time.monotonic() - since > _STALE_SECONDS)
            if is_void and not self._storage.options.writes:
                return None
            if now and now not in seen:
                if not seen:
                    log.info("lab's cache: %s compiles %s; waiting", now.decode(errors="replace"), key[:12])
                seen.add(now)
                since = time.monotonic()
            elif now and is_void:
                self._storage.remove(claim_name)
            elif not now:
                is_mine = self._claim(key)
                if not is_mine and time.monotonic() - since > _STALE_SECONDS:
                    return None  # there is a claim that this machine may not read, or it may not write one
            if not is_mine:
                time.sleep(_POLL_SECONDS)

    def _found(self, key: str) -> tuple[bytes, float] | None:
        name = entries.compilation_name(key)
        # A rejected one would be read again at each look.
        found = self._storage.get(name, MAX_ENTRY_BYTES, _DOWNLOAD_SECONDS) if self._storage.has(name) else None
        if found is None or len(found) <= entries.SECONDS.size:
            return None
        seconds: float = entries.SECONDS.unpack_from(found)[0]
        self._share.count_found(seconds)
        return bytes(found[entries.SECONDS.size :]), seconds

    def put(self, key: str, executable: bytes, seconds: float) -> None:
        """Schedule the upload of an executable that took long enough to compile; then others need not wait."""
        if not self._storage.options.writes or seconds < MIN_SECONDS:
            self.release(key)
            return

        def upload() -> None:
            self._storage.put(entries.compilation_name(key), entries.SECONDS.pack(seconds) + executable)
            self._drop(key)

        with self._lock:
            if key in self._held:
                self._held[key] = True
        self._later(f"compilation {key}", upload)

    def release(self, key: str) -> None:
        """Give up the claim of a key, if this machine has one and will not upload an executable for it."""
        if self._held.get(key) is False:
            self._drop(key)

    # ---- claims

    def _claim(self, key: str) -> bool:
        if not self._storage.create(entries.claim_name(key), self._claim_text(), READ_SECONDS):
            return False
        with self._lock:
            is_first = not self._held
            self._held[key] = False
        if is_first:
            # Without a thread, others find after a while that the claim is void.
            with contextlib.suppress(RuntimeError):
                Thread(self._renew, "claims").start()
        return True

    def _drop(self, key: str) -> None:
        with self._lock:
            is_held = self._held.pop(key, None) is not None
        if is_held:
            self._storage.remove(entries.claim_name(key))

    def _renew(self) -> None:
        while True:
            time.sleep(_RENEW_SECONDS)
            with self._lock:
                held = list(self._held)
                if not held:
                    return
            for key in held:
                self._storage.put(entries.claim_name(key), self._claim_text(), READ_SECONDS)
                if key not in self._held:
                    self._storage.remove(entries.claim_name(key))

    def _claim_text(self) -> bytes:
        """Return the content of a claim, which differs from one renewal to the next."""
        return f"{member()} {os.getpid()} {next(self._numbers)}".encode()
