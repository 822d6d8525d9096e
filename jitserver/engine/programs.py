"""Programs by call key: found in memory, loaded from the disk, or made, once for all waiting clients."""

import collections
import dataclasses
import logging
import threading
import time
from typing import NamedTuple

import msgspec

from jitclient import manifest
from jitclient.digests import digest
from jitclient.errors import AmbientInput, CaptureError, CrashesDaemon, JitserverError, ProgramLost
from jitclient.notices import labels
from jitclient.wire.messages import EntryInfo, Lookup, Manifest, Prepare, Settle, State
from jitserver.cache.entry import Entry, Makeup, Stored
from jitserver.cache.files import Corrupt, unpacked
from jitserver.cache.single_flight import Once
from jitserver.cache.tiers import Tiers
from jitserver.counters import Counters
from jitserver.crashes.journal import Journal, mark
from jitserver.engine import context, keys, program, serialization
from jitserver.engine.failures import TraceFailed
from jitserver.engine.inspection import info_of
from jitserver.engine.keys import CallKey
from jitserver.engine.program import Program, Say
from jitserver.traces import ambient
from jitserver.traces.lock import Busy

log = logging.getLogger(__name__)

RUNNING = "running"
_LOADING, _STORING = "loading", "storing"
_MOST_ON_DISK = 2  # strikes for storing or loading its executable, after which that is not tried
_MAX_REFUSALS = 10_000
_MAX_CANDIDATES = 32
_MAX_CANDIDATE_BYTES = 256 << 20  # of captures
_NO_MAKEUP = Makeup({}, b"")
_encode = msgspec.msgpack.Encoder().encode


class Hit(NamedTuple):
    """A program that was found, and where: in "memory" or on the "disk"."""

    entry: Entry
    level: str


@dataclasses.dataclass(frozen=True)
class _Candidate:
    """A program whose client has yet to compare its trace with its own, with what the disk needs of it."""

    entry: Entry
    request: Prepare
    payload: bytes


class Programs:
    """The programs of this daemon. Thread-safe.

    A program is found by its call key and its manifest: what its trace read outside of the capture. The daemon traces
    a capture to a candidate, which is nobody's program until the own trace of a client has agreed (`settle`). Clients
    that miss together wait for one candidate.
    """

    def __init__(self, counters: Counters, cache: Tiers, journal: Journal) -> None:
        self.counters = counters
        self.cache = cache
        self.journal = journal
        self._candidates: dict[str, _Candidate] = {}  # by base key, the oldest first
        self._waiting: collections.Counter[str] = collections.Counter()  # clients that have yet to settle them
        self._names: dict[str, set[tuple[str, ...]]] = {}  # by base key: the lists of names of its manifests
        self._agreed: dict[str, bytes] = {}  # by name in manifests: the digest in a client whose trace agreed
        self._lock = threading.Lock()
        self._tracing: Once[Entry] = Once(self._candidate)
        self._once: Once[Entry] = Once(cache.memory.get)
        self._restoring: Once[Entry | None] = Once(cache.memory.get)
        self._refusals: dict[str, tuple[CaptureError, str]] = {}  # by key: the reason, the name of the function

    def find(self, lookup: Lookup, say: Say) -> Hit | tuple[tuple[str, ...], ...] | None:
        """Return the program of a lookup, if it is in the cache; or lists of names, whose state the client must say.

        Raises:
            CaptureError: it is traced in each process, because an earlier trace showed that it must be.
            CrashesDaemon: it has too many strikes.
        """
        base, asked = keys.call_key(lookup), _asked(lookup)
        lists, told = self._lists_of(base.text), {each.names: each for each in lookup.manifests}
        if not all(names in told for names in lists if names):
            return tuple(names for names in lists if names)
        for one in [*(told[names] for names in lists if names), Manifest()]:
            key = base.under(one)
            refusal = self._refusals.get(key.text)
            if refusal is not None:
                raise refusal[0].with_traceback(None)
            self._refuse_crashing(key.text)
            hit = self._hit(key, asked, say)
            if hit is not None:
                return hit
        return None

    def key_of(self, lookup: Lookup) -> CallKey | tuple[tuple[str, ...], ...]:
        """Return the key under which a lookup finds its program; or lists of names, whose state the client must say."""
        base = keys.call_key(lookup)
        lists, told = self._lists_of(base.text), {each.names: each for each in lookup.manifests}
        if not all(names in told for names in lists if names):
            return tuple(names for names in lists if names)
        for names in filter(None, lists):
            key = base.under(told[names])
            if self.cache.get(key.text) is not None or key.text in self._refusals:
                return key
        return base

    def prepare(self, key: CallKey, request: Prepare, payload: bytes, say: Say) -> tuple[Entry, bool]:
        """Return the program of a request, and whether this call made it; `key` is that of its lookup.

        Other clients that request the same program meanwhile wait for it. One without a manifest is a candidate.

        Raises:
            CaptureError: the capture cannot be loaded.
            TraceFailed: the user's function raised during the trace, or its results cannot be serialized.
            CrashesDaemon: it has too many strikes.
        """
        self._refuse_crashing(key.text)
        if request.manifest is None:
            entry, made = self._candidate_of(key, request, payload, say)
        else:
            key = key.under(request.manifest)
            entry, made = self._once.get(key.text, lambda: self._make(key, request, payload, say))
            _check_asked(entry, request.lookup)
        if not made:
            self._count_hit(entry)
        return entry, made

    def _candidate_of(self, key: CallKey, request: Prepare, payload: bytes, say: Say) -> tuple[Entry, bool]:
        settled = self.cache.memory.get(key.under(Manifest()).text)  # since the client has looked it up
        if settled is not None and not request.anew:
            _check_asked(settled, request.lookup)
            return settled, False
        with self._lock:
            self._waiting[key.text] += 1
        try:
            entry, made = self._tracing.get(key.text, lambda: self._make_candidate(key, request, payload, say))
            _check_asked(entry, request.lookup)
            return entry, made
        except BaseException:
            self._settled(key.text)
            raise

    def order_free(self, lookup: Lookup) -> bytes:
        """Return the digest of a candidate's trace that does not depend on its order; empty if there is none."""
        candidate = self._candidates.get(keys.call_key(lookup).text)
        return b"" if candidate is None else candidate.entry.program.order_free()

    def differing(self, state: State) -> list[str]:
        """Return the names whose digests differ from those of a client, and may explain another trace.

        A name explains nothing that had a third digest in a client whose trace agreed, such as a counter.
        """
        found = []
        for name, theirs, ours in zip(state.names, state.state, manifest.state_of(state.names), strict=True):
            agreed = self._agreed.get(name, ours)
            if ours != theirs and agreed in (ours, theirs) and manifest.is_exact(name, ours, theirs):
                found.append(name)
        return found

    def settle(self, settled: Settle) -> None:
        """Have others find the candidate of a lookup under a manifest; or refuse the manifest, if there is a reason."""
        base = keys.call_key(settled.lookup)
        try:
            self._settle(base, settled)
        finally:
            self._settled(base.text)

    def _settle(self, base: CallKey, settled: Settle) -> None:
        key = base.under(settled.manifest)
        if settled.why:
            self._refuse(key.text, CaptureError(settled.why), settled.name)
            self._note_names(base.text, settled.manifest.names)
            return
        candidate = self._candidates.get(base.text)
        if candidate is None:
            return
        there = self.cache.memory.get(key.text)
        if there is not None:  # of a client that missed as well, or of a session before a restart
            _check_asked(there, settled.lookup)
            candidate.entry.info.key = key.text
            return
        self._agreed.update(zip(settled.manifest.names, settled.state, strict=False))
        request = msgspec.structs.replace(candidate.request, manifest=settled.manifest)
        entry = candidate.entry
        entry.program.agreed_order_free = settled.order_free
        if entry.info.key != base.text:  # it is settled under another manifest, too
            entry = self._entry(info_of(base.text, request, entry.program), entry.program)
        self._keep(key, entry, request, candidate.payload)

    def _make_candidate(self, key: CallKey, request: Prepare, payload: bytes, say: Say) -> Entry:
        built = self._build(key, request, payload, say)
        entry = self._entry(info_of(key.text, request, built), built)
        with self._lock:
            self._candidates[key.text] = _Candidate(entry, request, payload)
            nbytes = sum(len(candidate.payload) for candidate in self._candidates.values())
            while len(self._candidates) > 1 and (
                len(self._candidates) > _MAX_CANDIDATES or nbytes > _MAX_CANDIDATE_BYTES
            ):
                nbytes -= self._forget(next(iter(self._candidates)))
        return entry

    def _settled(self, key: str) -> None:
        """Note that one client waits no more. With the last one, the candidate and what it holds goes."""
        with self._lock:
            self._waiting[key] -= 1
            if self._waiting[key] <= 0:
                self._forget(key)

    def _forget(self, key: str) -> int:
        """Drop a candidate and its trace, if there is one; return the bytes of its capture."""
        self._waiting.pop(key, None)
        candidate = self._candidates.pop(key, None)
        if candidate is None:
            return 0
        candidate.entry.program.forget_trace()
        return len(candidate.payload)

    def _candidate(self, key: str) -> Entry | None:
        found = self._candidates.get(key)
        return None if found is None else found.entry

    def _lists_of(self, base: str) -> list[tuple[str, ...]]:
        """Return the lists of names of a key's manifests, the longest first: it knows best."""
        known = self._names.get(base)
        if known is None:
            known = self._names.setdefault(base, set(self.cache.names_of(base)))
        return sorted(known, key=lambda names: (-len(names), names))

    def _note_names(self, base: str, names: tuple[str, ...]) -> None:
        self._lists_of(base)
        with self._lock:
            self._names[base] = {*self._names[base], names}

    def _hit(self, key: CallKey, asked: bytes, say: Say) -> Hit | None:
        level = "disk" if self.cache.memory.get(key.text) is None else "memory"
        entry = self._restored(key, say)
        if entry is None or entry.program.asked != asked:
            return None
        self._count_hit(entry)
        return Hit(entry, level)

    def _refuse(self, key: str, why: CaptureError, name: str) -> None:
        self._refusals[key] = why, name
        for oldest in list(self._refusals)[:-_MAX_REFUSALS]:
            self._refusals.pop(oldest, None)

    def entry_of(self, key: str, say: Say = lambda _: None) -> Entry | None:
        """The program that once had a call key; if other versions made it, the same as made by these versions."""
        entry = self.cache.memory.get(key)
        stored = self.cache.store.get(key) if entry is None else None
        if stored is None:
            return entry
        request = request_of(stored)
        now = _key_of(request)
        self._refuse_crashing(now.text)
        return self._restored(now, say) or self._made_again(now, stored, request, say)

    def warm(self, key: str) -> bool:
        """Loads a program from the disk, unless other versions made it or it has strikes; returns whether it did."""
        suspect = self.journal.strikes.of(key)
        if self.cache.memory.get(key) is not None or (suspect is not None and suspect.held):
            return False
        try:
            stored = self.cache.store.get(key)
            request = None if stored is None else request_of(stored)
            now = None if request is None else _key_of(request)
            if now is None or now.text != key:
                return False
            return self._restored(now, lambda _: None) is not None
        except Exception as error:  # without an executable, user code runs again
            log.info("program %s cannot be loaded: %s", key[:12], error)
            return False

    def _refuse_crashing(self, key: str) -> None:
        refusal = self.journal.strikes.refusal(key)
        if refusal:
            raise CrashesDaemon(refusal)

    def _make(self, key: CallKey, request: Prepare, payload: bytes, say: Say) -> Entry:
        built = self._build(key, request, payload, say)
        return self._keep(key, self._entry(info_of(key.text, request, built), built), request, payload)

    def _build(self, key: CallKey, request: Prepare, payload: bytes, say: Say) -> Program:
        self.counters.add(misses=1)
        lookup = request.lookup
        label = labels.of_call(request.name, lookup.signature.leaves)
        with self.journal.noted("unpacking", key.text, label) as go_on:

            def say_on(phase: str) -> None:
                go_on(phase)
                say(phase)

            if request.traced is not None:
                built = program.from_client(payload, request.traced, lookup.signature, request.name, say_on)
            else:
                built = self._trace(request, payload, say_on)
        built.asked = _asked(lookup)
        log.info("made %s in %.2f s", label, sum(built.seconds.values()))
        self.counters.add(compiles=1, text_hits=built.is_found, compile_seconds=sum(built.seconds.values()))
        return built

    def _keep(self, key: CallKey, entry: Entry, request: Prepare, payload: bytes) -> Entry:
        """Keep a program under a key, in memory and on the disk."""
        assert request.manifest is not None
        entry.makeup = keys.makeup_of(key, request.parts)
        entry.info = msgspec.structs.replace(entry.info, key=key.text, base=key.base, names=request.manifest.names)
        built: Program = entry.program
        built.mark = mark(RUNNING, key.text, entry.info.label)
        facts = serialization.facts_of(built, request.lookup.signature.context)
        stored = Stored(entry.info, entry.makeup, facts, _encode(request))
        kept = self.cache.keep(entry, stored, lambda: self._executable_of(entry), payload)
        self._note_names(key.base, request.manifest.names)
        return kept

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

    def _entry(self, info: EntryInfo, built: Program, makeup: Makeup = _NO_MAKEUP) -> Entry:
        built.mark = mark(RUNNING, info.key, info.label)
        built.suspect = info.key if self.journal.strikes.count(info.key, RUNNING) else ""
        entry = Entry(info, built, makeup)
        entry.rest = lambda: self._rest(entry)
        return entry

    def _rest(self, entry: Entry) -> None:
        base, built = entry.info.base, entry.program
        candidate = self._candidates.get(base)
        if candidate is not None and candidate.entry.program is built:  # settled again, it would wait for itself
            self._forget(base)
        built.rest(lambda: self._again(entry.key))

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
        compared = serialization.evidence_in(stored.facts)
        entry, made = self._once.get(key.text, lambda: self._make_same(key, request, bytes(capture), say, compared))
        if made:
            before, now = stored.info, entry.info
            now.hits, now.saved, now.pinned = before.hits, before.saved, before.pinned
        return entry

    def _make_same(self, key: CallKey, request: Prepare, payload: bytes, say: Say, evidence: bytes) -> Entry:
        """Make a program anew that was compared with its client's trace: it must be the same again."""
        built = self._build(key, request, payload, say)
        if built.evidence != evidence:
            raise CaptureError("another trace of it gives another program")
        built.forget_trace()
        return self._keep(key, self._entry(info_of(key.text, request, built), built), request, payload)

    def _trace(self, request: Prepare, payload: bytes, say: Say) -> Program:
        lookup = request.lookup
        for last in (False, True):
            start = time.perf_counter()
            # Loaded for each trace, as the key does not include what a trace changes in captured objects.
            self.counters.add(captures_loaded=1)
            loaded = program.loaded_for(lookup, payload)
            load_seconds = time.perf_counter() - start
            self.counters.add(traces=1)
            try:
                built = program.from_capture(loaded, lookup.signature, request.name, say, not lookup.unverified)
            except BaseException as error:
                log.info("tracing %s failed: %s: %.200s", request.name, type(error).__name__, error)
                if isinstance(error, AmbientInput) and str(error) == ambient.OF_GENERATORS and not last:
                    continue  # it may have been another thread
                raise TraceFailed(error, loaded, is_final=_is_final(error)) from error
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
        self._forget_candidates(prefix)
        for key, (_, name) in list(self._refusals.items()):
            if key.startswith(prefix) or name == prefix:
                self._refusals.pop(key, None)
        removed = [info.key for info in self.cache.remove(prefix)]
        return list(dict.fromkeys([*removed, *self.journal.strikes.clear(prefix)]))

    def _forget_candidates(self, prefix: str) -> None:
        with self._lock:
            for key, candidate in list(self._candidates.items()):
                if key.startswith(prefix) or candidate.request.name == prefix:
                    self._forget(key)

    def refusal(self, key: str) -> str:
        """Why the daemon does not trace a function again; empty if it would."""
        found = self._refusals.get(key)
        return "" if found is None else str(found[0])

    def _count_hit(self, entry: Entry) -> None:
        self.counters.add(hits=1, compile_seconds_saved=self.cache.used(entry))


def _is_final(error: BaseException) -> bool:
    """Whether a failure says nothing of the function: the next trace of it may succeed."""
    if isinstance(error, CaptureError):
        return isinstance(error, Busy)
    return isinstance(error, (JitserverError, MemoryError))


def _asked(lookup: Lookup) -> bytes:
    """Return a digest of all that a client says of a program.

    A program is used only if this is equal, too: a mistake in the call key must not give one function's program to
    another.
    """
    return digest(_encode(msgspec.structs.replace(lookup, locations=b"", manifests=())))


def _check_asked(entry: Entry, lookup: Lookup) -> None:
    if entry.program.asked != _asked(lookup):
        raise CaptureError("another function has the same call key")


def _key_of(request: Prepare) -> CallKey:
    return keys.call_key(request.lookup).under(request.manifest)


def request_of(stored: Stored) -> Prepare:
    """The request from which a stored program was made.

    Raises:
        Corrupt: the disk has something else.
    """
    return unpacked(stored.request, Prepare)
