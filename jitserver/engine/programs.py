"""Programs by call key: found in memory, loaded from the disk, or made, once for all waiting clients."""

import logging
import time

import msgspec

from jitclient.errors import AmbientInput, CaptureError, CrashesDaemon, JitserverError, ProgramLost
from jitclient.local_jax.context import on_mesh
from jitclient.notices import labels
from jitclient.wire.messages import EntryInfo, Prepare, Signature
from jitserver.cache.entry import Entry, Makeup, Stored
from jitserver.cache.files import Corrupt, unpacked
from jitserver.cache.single_flight import Once
from jitserver.cache.tiers import Tiers
from jitserver.counters import Counters
from jitserver.crashes.journal import Journal, mark
from jitserver.engine import context, keys, program, serialization
from jitserver.engine.failures import TraceFailed, text_of
from jitserver.engine.inspection import info_of
from jitserver.engine.keys import CallKey
from jitserver.engine.program import TRACING, Program, Say
from jitserver.traces import ambient
from jitserver.traces.lock import Busy

log = logging.getLogger(__name__)

RUNNING = "running"
_LOADING, _STORING = "loading", "storing"
_MOST_ON_DISK = 2  # strikes for storing or loading its executable, after which that is not tried
_MOST_REFUSALS = 10_000
_encode = msgspec.msgpack.Encoder().encode


class Programs:
    """The programs of this daemon. Thread-safe."""

    def __init__(self, counters: Counters, cache: Tiers, journal: Journal) -> None:
        self.counters = counters
        self.cache = cache
        self.journal = journal
        self._once: Once[Entry] = Once(cache.memory.get)
        self._restoring: Once[Entry | None] = Once(cache.memory.get)
        self._of_clients: dict[str, tuple[CaptureError, str]] = {}  # by key: the reason, the name of the function

    def find(self, key: CallKey, say: Say) -> Entry | None:
        """The program of a key, if it is in the cache.

        Raises:
            CaptureError: an earlier trace made ambient reads or failed.
            CrashesDaemon: it has too many strikes.
        """
        self._refuse_crashing(key.text)
        refusal = self._of_clients.get(key.text)
        if refusal is not None:
            raise refusal[0]
        entry = self._restored(key, say)
        if entry is not None:
            self._count_hit(entry)
        return entry

    def prepare(self, key: CallKey, request: Prepare, payload: bytes, say: Say) -> tuple[Entry, bool]:
        """The program of a request, whose key that is, and whether this call made it.

        Other clients that request the same program meanwhile wait for it.

        Raises:
            CaptureError: the capture cannot be loaded.
            TraceFailed: the user's function raised during the trace, or its results cannot be serialized.
            CrashesDaemon: it has too many strikes.
        """
        self._refuse_crashing(key.text)
        entry, made = self._made_once(key, request, payload, say)
        if not made:
            self._count_hit(entry)
        return entry, made

    def entry_of(self, key: str, say: Say = lambda _: None) -> Entry | None:
        """The program that once had a call key; if other versions made it, the same as made by these versions."""
        entry = self.cache.memory.get(key)
        stored = self.cache.store.get(key) if entry is None else None
        if stored is None:
            return entry
        request = request_of(stored)
        now = keys.call_key(request.lookup)
        self._refuse_crashing(now.text)
        return self._restored(now, say) or self._made_again(now, stored, request, say)

    def warm(self, key: str) -> bool:
        """Loads a program from the disk, unless other versions made it or it has strikes; returns whether it did."""
        suspect = self.journal.strikes.of(key)
        if self.cache.memory.get(key) is not None or (suspect is not None and suspect.held):
            return False
        try:
            stored = self.cache.store.get(key)
            now = keys.call_key(request_of(stored).lookup) if stored is not None else None
            if now is None or now.text != key:
                return False
            return self._restored(now, lambda _: None) is not None
        except Exception as error:  # without an executable, user code runs again
            log.info("program %s cannot be loaded: %s", key[:12], error)
            return False

    def _made_once(self, key: CallKey, request: Prepare, payload: bytes, say: Say) -> tuple[Entry, bool]:
        return self._once.get(key.text, lambda: self._make(key, request, payload, say))

    def _refuse_crashing(self, key: str) -> None:
        refusal = self.journal.strikes.refusal(key)
        if refusal:
            raise CrashesDaemon(refusal)

    def _make(self, key: CallKey, request: Prepare, payload: bytes, say: Say) -> Entry:
        self.counters.add(misses=1)
        lookup = request.lookup
        makeup = keys.makeup_of(key, request.parts)
        label = labels.of_call(request.name, lookup.signature.leaves)
        with self.journal.noted("unpacking", key.text, label) as go_on:

            def say_on(phase: str) -> None:
                go_on(phase)
                say(phase)

            if request.traced is not None:
                built = program.from_client(payload, request.traced, lookup.signature, request.name, say_on)
            else:
                built = self._trace(key.text, request, payload, say_on)
        self.counters.add(compiles=1, text_hits=built.is_found, compile_seconds=sum(built.seconds.values()))
        entry = self._entry(info_of(key.text, request, built), built, makeup)
        facts = serialization.facts_of(built, lookup.signature.context)
        stored = Stored(entry.info, makeup, facts, _encode(request))
        return self.cache.keep(entry, stored, lambda: self._executable_of(entry), payload)

    # ---- programs on the disk

    def _executable_of(self, entry: Entry) -> bytes:
        if self.journal.strikes.count(entry.key, _STORING) >= _MOST_ON_DISK:
            return b""
        try:
            with self.journal.noted(_STORING, entry.key, entry.info.label):
                return serialization.executable_of(entry.program)
        except Exception as error:  # it has callbacks, or JAX cannot serialize it for another reason
            log.info("%s is stored without its executable: %s", entry.info.label, error)
            return b""

    def _entry(self, info: EntryInfo, built: Program, makeup: Makeup) -> Entry:
        built.mark = mark(RUNNING, info.key, info.label)
        built.suspect = info.key if self.journal.strikes.count(info.key, RUNNING) else ""
        return Entry(info, built, makeup, rest=lambda: built.rest(lambda: self._again(info.key)))

    def _again(self, key: str) -> Program:
        entry = self.entry_of(key)
        if entry is None:
            raise ProgramLost(
                f"program {key[:12]} was evicted from memory, and is not on the disk any more: call it again"
            )
        built: Program = entry.program
        return built

    def _restored(self, key: CallKey, say: Say) -> Entry | None:
        return self._restoring.get(key.text, lambda: self._restore(key, say))[0]

    def _restore(self, key: CallKey, say: Say) -> Entry | None:
        stored = self.cache.store.get(key.text)
        if stored is None:
            return None
        executable = self.cache.store.blob(stored.executable)
        if executable is not None and self.journal.strikes.count(key.text, _LOADING) < _MOST_ON_DISK:
            say(_LOADING)
            try:
                with self.journal.noted(_LOADING, key.text, stored.info.label):
                    built = serialization.loaded(stored.facts, executable)
            except Exception:
                log.warning("cannot load the executable of %s; it is compiled again", stored.info.label, exc_info=True)
                self.cache.store.spoilt(stored)
            else:
                self.counters.add(restores=1)
                entry = self.cache.memory.put(self._entry(stored.info, built, stored.makeup))
                if self.cache.store.get(key.text) is None:  # it was removed meanwhile
                    self.cache.memory.remove([key.text])
                return entry
        try:
            return self._made_again(key, stored, request_of(stored), say)
        except (CaptureError, Corrupt, TraceFailed) as error:
            log.info("%s cannot be made again without its client: %s", stored.info.label, error)
            return None

    def _made_again(self, key: CallKey, stored: Stored, request: Prepare, say: Say) -> Entry | None:
        capture = self.cache.store.blob(stored.capture)
        if capture is None:
            return None
        entry, made = self._made_once(key, request, bytes(capture), say)
        if made:
            before, now = stored.info, entry.info
            now.hits, now.saved, now.pinned = before.hits, before.saved, before.pinned
        return entry

    def _trace(self, key: str, request: Prepare, payload: bytes, say: Say) -> Program:
        lookup = request.lookup
        for last in (False, True):
            start = time.perf_counter()
            # Loaded for each trace, as the key does not include what a trace changes in captured objects.
            self.counters.add(captures_loaded=1)
            loaded = program.loaded_for(lookup, payload)
            load_seconds = time.perf_counter() - start
            self.counters.add(traces=1)
            phases: list[str] = []

            def say_on(phase: str, phases: list[str] = phases) -> None:
                phases.append(phase)
                say(phase)

            try:
                built = program.from_capture(loaded, lookup.signature, request.name, say_on, request.verify)
            except BaseException as error:
                if isinstance(error, AmbientInput) and str(error) == ambient.OF_GENERATORS and not last:
                    continue  # it may have been another thread
                why = _why_of_client(error, is_traced=phases != [TRACING])
                if why is error or (why is not None and not _is_placed(lookup.signature)):
                    self._of_clients[key] = why, request.name
                    for oldest in list(self._of_clients)[:-_MOST_REFUSALS]:
                        self._of_clients.pop(oldest, None)
                raise TraceFailed(error, loaded, is_final=why is None or why is error) from error
            finally:
                context.packages().meet_loaded()
            built.seconds = {"load": load_seconds, **built.seconds}
            return built
        raise AssertionError("unreachable")

    def remove(self, prefix: str) -> list[str]:
        """Removes programs, refusals and strikes whose key starts with `prefix`, or whose function has that name.

        Returns:
            The keys of the removed programs, and of those that had only strikes.
        """
        for key, (_, name) in list(self._of_clients.items()):
            if key.startswith(prefix) or name == prefix:
                self._of_clients.pop(key, None)
        removed = [info.key for info in self.cache.remove(prefix)]
        return list(dict.fromkeys([*removed, *self.journal.strikes.clear(prefix)]))

    def refusal(self, key: str) -> str:
        """Why the daemon does not trace a function again; empty if it would."""
        found = self._of_clients.get(key)
        return "" if found is None else str(found[0])

    def _count_hit(self, entry: Entry) -> None:
        self.counters.add(hits=1, compile_seconds_saved=self.cache.used(entry))


def _why_of_client(error: BaseException, is_traced: bool) -> CaptureError | None:
    """Why clients must trace a function from now on; None if that would not help.

    A trace that raises on the daemon may succeed in the user's own process.
    """
    if isinstance(error, CaptureError) and not isinstance(error, Busy):
        return error
    if is_traced or not isinstance(error, Exception) or isinstance(error, (JitserverError, MemoryError)):
        return None
    return CaptureError(f"its trace on the daemon raised {type(error).__qualname__}: {text_of(error):.200}")


def _is_placed(signature: Signature) -> bool:
    """Whether a client's trace could not run here: its shardings and devices are the client's."""
    placed = any(spec.sharding is not None for spec in signature.leaves)
    return placed or signature.shardings is not None or on_mesh(signature.context)


def request_of(stored: Stored) -> Prepare:
    """The request from which a stored program was made.

    Raises:
        Corrupt: the disk has something else.
    """
    return unpacked(stored.request, Prepare)
