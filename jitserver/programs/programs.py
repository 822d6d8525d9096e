"""Look-up of programs by call key: found in memory, loaded from disk, or made, once for all waiting clients."""

import collections
import dataclasses
import functools
import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from jitclient.capture import manifest
from jitclient.core import events
from jitclient.core.digests import digest
from jitclient.errors import AmbientInput, CaptureError, CrashesDaemon, JitserverError, ProgramLost
from jitclient.jaxside import cpu_executables
from jitclient.jaxside.evidence import is_same_without_order
from jitclient.wire import labels
from jitclient.wire.introspection import EntryInfo
from jitclient.wire.messages import Lookup, Manifest, Prepare, Settle, Settled
from jitserver.programs import context, keys, program, serialization
from jitserver.programs.counters import Counters
from jitserver.programs.exceptions import TraceRaised
from jitserver.programs.inspection import info_of
from jitserver.programs.keys import CallKey
from jitserver.programs.latest import Latest
from jitserver.programs.manifest_names import ManifestNames
from jitserver.programs.program import CompiledProgram
from jitserver.programs.traces import ambient
from jitserver.programs.traces.lock import TraceBusy
from jitserver.store.checked_files import Corrupt, unpacked
from jitserver.store.entry import Entry, KeyComponents, Stored
from jitserver.store.journal import Journal, mark
from jitserver.store.single_flight import SingleFlight
from jitserver.store.tiers import Tiers

log = logging.getLogger(__name__)

RUNNING = "running"
_READING, _LOADING, _STORING = "reading", "loading", "storing"
# Strikes for storing or loading an executable after which the daemon does not try again.
_MAX_DISK_STRIKES = 2
_MAX_REFUSALS, _MAX_AGREED = 10_000, 65_536
_MAX_CANDIDATES = 32
_MAX_CANDIDATE_BYTES = 256 << 20  # of captures
_NO_COMPONENTS = KeyComponents({})
_encode = msgspec.msgpack.Encoder().encode


class Hit(NamedTuple):
    """A program that was found, and where: in "memory", on the "disk", or in the "share", the lab's cache; or "remade"
    from its capture on the disk.
    """

    entry: Entry
    level: str


class InLab(NamedTuple):
    """A program that the lab's cache has, or only the trace of it, and the seconds that making such a program took."""

    seconds: float
    only_trace: bool = False


@dataclasses.dataclass(frozen=True)
class _Candidate:
    """A candidate: a program that no client's own trace has confirmed yet, with the data to store it."""

    entry: Entry
    request: Prepare
    payload: bytes


class Programs:
    """The programs of this daemon. Thread-safe.

    A program is found by its call key and its manifest, the data outside of the capture that its trace read. The
    daemon's trace of a capture makes a candidate, which is shared only after the own trace of a client has agreed
    (`settle`). Clients that miss at the same time wait for one candidate.
    """

    def __init__(self, counters: Counters, cache: Tiers, journal: Journal) -> None:
        self.counters = counters
        self.cache = cache
        self.journal = journal
        self._candidates: dict[str, _Candidate] = {}  # by base key, the oldest first
        # By base key: clients that have yet to settle the candidate.
        self._waiting: collections.Counter[str] = collections.Counter()
        self._names = ManifestNames(cache)
        self._agreed = Latest[str, bytes](_MAX_AGREED)  # by name in manifests: a digest in a client whose trace agreed
        self._lock = threading.Lock()
        self._tracing: SingleFlight[Entry] = SingleFlight(self._candidate)
        self._once: SingleFlight[Entry] = SingleFlight(cache.memory.get)
        self._restoring: SingleFlight[Entry | None] = SingleFlight(cache.memory.get)
        self._refusals = Latest[str, tuple[CaptureError, str]](_MAX_REFUSALS)  # by key: the reason, the function's name

    def find(self, lookup: Lookup) -> Hit | tuple[tuple[str, ...], ...] | None:
        """Return the program of a lookup if it is cached, or the lists of names whose state the client must send first.

        Raises:
            CaptureError: the function is traced in each process, because an earlier trace showed that it must be.
            CrashesDaemon: the program has too many strikes.
        """
        base, lookup_digest = keys.call_key(lookup), _digest_of(lookup)
        found = self._find(base, lookup, lookup_digest)
        if found is None and self._names.look_again(base):
            found = self._find(base, lookup, lookup_digest)
        return found

    def _find(self, base: CallKey, lookup: Lookup, lookup_digest: bytes) -> Hit | tuple[tuple[str, ...], ...] | None:
        lists, sent = self._names.lists_of(base.text), {each.names: each for each in lookup.manifests}
        if not all(names in sent for names in lists if names):
            return tuple(names for names in lists if names)
        for one in [*(sent[names] for names in lists if names), Manifest()]:
            key = base.under(one)
            refusal = self._refusals.get(key.text)
            if refusal is not None:
                raise refusal[0].with_traceback(None)
            self._refuse_crashing(key.text)
            hit = self._hit(key, lookup_digest)
            if hit is not None:
                return hit
        return None

    def key_of(self, lookup: Lookup) -> CallKey | tuple[tuple[str, ...], ...]:
        """Return the key of a lookup's program, or the lists of names whose state the client must send first."""
        base = keys.call_key(lookup)
        found = self._key_of(base, lookup)
        if found is None and self._names.look_again(base):
            found = self._key_of(base, lookup)
        return base if found is None else found

    def _key_of(self, base: CallKey, lookup: Lookup) -> CallKey | tuple[tuple[str, ...], ...] | None:
        lists, sent = self._names.lists_of(base.text), {each.names: each for each in lookup.manifests}
        if not all(names in sent for names in lists if names):
            return tuple(names for names in lists if names)
        for one in [*(sent[names] for names in lists if names), Manifest()]:
            key = base.under(one)
            if self.cache.get(key.text) is not None or key.text in self._refusals:
                return key
            if self.in_lab(key):
                return key
        return None

    def in_lab(self, key: CallKey) -> InLab | None:
        """Return what the lab's cache has of a program; None if it has nothing."""
        seconds, share = self._names.seconds_shared(key.base), self.cache.share
        if seconds is None or share is None:
            return None
        if share.has(key.text):
            return InLab(seconds)
        return InLab(seconds, only_trace=True) if share.has_trace(key.components().portable_key) else None

    def prepare(self, key: CallKey, request: Prepare, payload: bytes) -> tuple[Entry, bool]:
        """Return the program of a request, and whether this call made it.

        Other clients that request the same program meanwhile wait for it. Without a manifest, the program is a
        candidate.

        Args:
            key: the call key of the request's lookup.
            request: the request.
            payload: the capture, or the program that the client traced.

        Raises:
            CaptureError: the capture cannot be loaded.
            TraceRaised: the user's function raised an exception during the trace, or its results cannot be serialized.
            CrashesDaemon: the program has too many strikes.
        """
        self._refuse_crashing(key.text)
        if request.manifest is None:
            entry, made = self._candidate_of(key, request, payload)
        else:
            key = key.under(request.manifest)
            entry, made = self._once.get(key.text, lambda: self._make(key, request, payload))
            _check_lookup(entry, request.lookup)
        if not made:
            self._count_hit(entry)
        return entry, made

    def _candidate_of(self, key: CallKey, request: Prepare, payload: bytes) -> tuple[Entry, bool]:
        with self._lock:
            self._waiting[key.text] += 1
        try:
            entry, made = self._tracing.get(key.text, lambda: self._make_candidate(key, request, payload))
            _check_lookup(entry, request.lookup)
            return entry, made
        except BaseException:
            self._settled(key.text)
            raise

    def _differing(self, state: Manifest) -> tuple[str, ...]:
        """Return the names whose digests differ from a client's, and may explain why its trace differs.

        A name is left out if a client whose trace agreed had a third digest for it, as with a counter: such a name does
        not affect traces.
        """
        found = []
        for name, theirs, ours in zip(state.names, state.state, manifest.state_of(state.names), strict=True):
            agreed = self._agreed.get(name) or ours
            if ours != theirs and agreed in (ours, theirs) and manifest.is_exact(name, ours, theirs):
                found.append(name)
        return tuple(found)

    def settle(self, settled: Settle) -> Settled:
        """Share the candidate of a lookup under a manifest; or refuse the manifest, if the client sent a reason."""
        base = keys.call_key(settled.lookup)
        if settled.order_free and not settled.agrees:
            if (is_reordered := self._is_reordered(base, settled.order_free)) is not True:
                return Settled(is_reordered)
        elif not (settled.agrees or settled.why):
            return Settled(False, self._differing(settled.manifest))
        try:
            self._settle(base, settled)
        finally:
            self._settled(base.text)
        return Settled(not settled.why)

    def _is_reordered(self, base: CallKey, order_free: bytes) -> bool | None:
        """Return whether the trace of a candidate has a client's digest without the order; None without a candidate."""
        candidate = self._candidates.get(base.text)
        if candidate is None:
            return None
        return is_same_without_order(order_free, candidate.entry.program.order_free())

    def _settle(self, base: CallKey, settled: Settle) -> None:
        key = base.under(settled.manifest)
        if settled.why:
            self._refuse(key.text, CaptureError(settled.why), settled.name)
            self._names.note(base.text, settled.manifest.names)
            return
        candidate = self._candidates.get(base.text)
        if candidate is None:
            return
        there = self.cache.memory.get(key.text)
        # Made for another client that also missed, or restored from a session before a restart.
        if there is not None:
            _check_lookup(there, settled.lookup)
            candidate.entry.info.key = key.text
            return
        for name, agreed in zip(settled.manifest.names, settled.manifest.state, strict=False):
            self._agreed.put(name, agreed)
        request = msgspec.structs.replace(candidate.request, manifest=settled.manifest)
        entry = candidate.entry
        entry.program.agreed_order_free = settled.order_free or entry.program.agreed_order_free
        if entry.info.key != base.text:  # it is already settled under another manifest
            entry = self._entry(info_of(base.text, request, entry.program), entry.program)
        self._keep(key, entry, request, candidate.payload)

    def _make_candidate(self, key: CallKey, request: Prepare, payload: bytes) -> Entry:
        built = self._build(key, request, payload)
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
        """Record that one client no longer waits for a candidate. After the last client, drop the candidate."""
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

    def _hit(self, key: CallKey, lookup_digest: bytes) -> Hit | None:
        level = "disk" if self.cache.memory.get(key.text) is None else "memory"
        entry = self._restored(key)
        if entry is None or entry.program.lookup_digest != lookup_digest:
            return None
        if level == "disk" and entry.program.why_remade:
            return Hit(entry, "remade")
        if level == "disk" and entry.program.is_shared:
            level = "share"
        self._count_hit(entry)
        return Hit(entry, level)

    def _refuse(self, key: str, why: CaptureError, name: str) -> None:
        self._refusals.put(key, (why, name))

    def entry_of(self, key: str) -> Entry | None:
        """Return the entry of a program by call key.

        A program made under other versions is looked up, or made, for the current versions.
        """
        entry = self.cache.memory.get(key)
        if entry is not None:
            return entry
        recipe, why = self.cache.memory.recipe(key), "it was in no cache"
        stored = recipe.stored if recipe is not None else self.cache.store.get(key)
        if stored is None:
            return None
        request = request_of(stored)
        now = _key_of(request)
        self._refuse_crashing(now.text)
        if recipe is not None:
            return self._made_again(now, stored, request, why, recipe.capture)
        why = "it was made under other versions"
        return self._restored(now) or self._made_again(now, stored, request, why)

    def warm(self, key: str) -> bool:
        """Load a program from disk, unless it was made under other versions or has strikes.

        Returns:
            Whether the program was loaded.
        """
        suspect = self.journal.strikes.of(key)
        if self.cache.memory.get(key) is not None or (suspect is not None and suspect.counted):
            return False
        try:
            stored = self.cache.store.get(key)
            request = None if stored is None else request_of(stored)
            now = None if request is None else _key_of(request)
            if now is None or now.text != key:
                return False
            return self._restored(now) is not None
        # Without a stored executable, user code runs again and may raise any exception.
        except Exception as error:
            log.info("program %s cannot be loaded: %s", key[:12], error)
            return False

    def _refuse_crashing(self, key: str) -> None:
        refusal = self.journal.strikes.refusal(key)
        if refusal:
            raise CrashesDaemon(refusal)

    def _make(self, key: CallKey, request: Prepare, payload: bytes) -> Entry:
        built = self._build(key, request, payload)
        entry = self._keep(key, self._entry(info_of(key.text, request, built), built), request, payload)
        built.forget_trace()
        return entry

    def _build(self, key: CallKey, request: Prepare, payload: bytes) -> CompiledProgram:
        lookup = request.lookup

        def make() -> CompiledProgram:
            if request.traced is not None:
                return program.from_client(payload, request.traced, lookup.signature, request.name)
            return self._trace(request, payload)

        built = self._recorded(key, request, make)
        built.lookup_digest = _digest_of(lookup)
        return built

    def _recorded(self, key: CallKey, request: Prepare, make: Callable[[], CompiledProgram]) -> CompiledProgram:
        """Make a program, which the crash journal and the counters record."""
        self.counters.add(misses=1)
        label = labels.of_program(request)
        with self.journal.recording("unpacking", key.text, label) as next_phase, events.log.observed_by(next_phase):
            built = make()
        log.info("made %s in %.2f s", label, sum(built.seconds.values()))
        self.counters.add(compiles=1, text_hits=built.is_found, compile_seconds=sum(built.seconds.values()))
        return built

    def _keep(self, key: CallKey, entry: Entry, request: Prepare, payload: bytes) -> Entry:
        """Store a program under a key, in memory and, unless it is of one process, on disk."""
        assert request.manifest is not None
        entry.components = key.components()
        entry.info = msgspec.structs.replace(entry.info, key=key.text, base=key.base, names=request.manifest.names)
        built: CompiledProgram = entry.program
        built.mark = mark(RUNNING, key.text, entry.info.label)
        facts = serialization.facts_of(built, request.lookup.signature.context)
        stored = Stored(entry.info, entry.components, facts, _encode(request))
        is_of_one = bool(request.manifest.why_of_one_process)
        if is_of_one:
            self._remove_of_ended(key.base)
        kept = self.cache.keep(entry, stored, self._serializer(entry), payload, built.exported, not is_of_one)
        if not is_of_one:
            self._names.note(key.base, request.manifest.names)
        return kept

    def _remove_of_ended(self, base: str) -> None:
        """Remove the programs of a base key that were each of one process, which has ended."""
        memory = self.cache.memory
        of_one = (entry for entry in memory.entries() if Manifest(entry.info.names).why_of_one_process)
        memory.remove([entry.key for entry in of_one if entry.info.base == base and not entry.holders])

    # ---- programs on the disk

    def _serializer(self, entry: Entry) -> Callable[[], bytes]:
        """Return a function that serializes the executable of a program that has not run yet."""
        if not entry.program.must_serialize_first:
            return lambda: self._executable_of(entry)
        data = self._executable_of(entry)
        return lambda: data

    def executable_of(self, entry: Entry) -> bytes | memoryview:
        """Return the serialized executable of a program; empty if it cannot be serialized."""
        stored = self.cache.stored(entry.key)
        found = None if stored is None else self.cache.store.blob(stored.executable)
        if found is not None or entry.program.must_serialize_first:
            return found or b""
        return self._executable_of(entry)

    def _executable_of(self, entry: Entry) -> bytes:
        if self.journal.strikes.count(entry.key, _STORING) >= _MAX_DISK_STRIKES:
            return b""
        try:
            with self.journal.recording(_STORING, entry.key, entry.info.label):
                data = serialization.executable_of(entry.program)
            entry.info.no_executable = ""
            return data
        # The executable has callbacks, or JAX cannot serialize it for another reason.
        except Exception as error:
            entry.info.no_executable = _first_line(error)
            log.info("%s is stored without its executable: %s", entry.info.label, error)
            return b""

    def _entry(self, info: EntryInfo, built: CompiledProgram, components: KeyComponents = _NO_COMPONENTS) -> Entry:
        built.mark = mark(RUNNING, info.key, info.label)
        built.suspect = info.key if self.journal.strikes.has(info.key, RUNNING) else ""
        return Entry(info, built, components, self._unload)

    def _unload(self, entry: Entry) -> None:
        base, built = entry.info.base, entry.program
        candidate = self._candidates.get(base)
        # Drop the candidate: if it were settled again, the program would wait for itself.
        if candidate is not None and candidate.entry.program is built:
            self._forget(base)
        built.unload(functools.partial(self._reload, entry.key))

    def _reload(self, key: str) -> CompiledProgram:
        entry = self.entry_of(key)
        if entry is None:
            raise ProgramLost(
                f"program {key[:12]} was evicted from memory, and is no longer on the disk. Call it again."
            )
        built: CompiledProgram = entry.program
        return built

    def _restored(self, key: CallKey) -> Entry | None:
        return self._restoring.get(key.text, lambda: self._restore(key))[0]

    def _restore(self, key: CallKey) -> Entry | None:
        events.log.begin(_READING)
        found = self.cache.load(key.text, self._names.seconds_shared(key.base))
        if found is None:
            return self._compiled(key)
        stored, executable, is_shared = found
        refusal = cpu_executables.refusal()
        why = stored.info.no_executable or refusal
        may_load = not refusal and self.journal.strikes.count(key.text, _LOADING) < _MAX_DISK_STRIKES
        if executable is not None and may_load:
            events.log.begin(_LOADING)
            began = time.monotonic()
            try:
                with self.journal.recording(_LOADING, key.text, stored.info.label):
                    built = serialization.loaded(stored.facts, executable)
            except Exception as error:  # not damage: the store has compared the bytes with their digest
                why = cpu_executables.refusal() or f"its executable cannot be loaded: {_first_line(error)}"
                log.warning("%s: %s. It is compiled again.", stored.info.label, why)
                if self.cache.share is not None and is_shared:
                    self.cache.share.reject(key.text, why)
            else:
                self.counters.add(restores=1)
                built.is_shared = is_shared
                stored.info.loading = time.monotonic() - began
                entry = self.cache.memory.put(self._entry(stored.info, built, stored.components))
                if is_shared:
                    self.cache.adopt(found)
                elif self.cache.store.get(key.text) is None:  # it was removed meanwhile
                    self.cache.memory.remove([key.text])
                return entry
        if is_shared:
            return self._compiled(key)
        made = None
        try:
            made = self._made_again(key, stored, request_of(stored), why or "its file is missing")
        except (CaptureError, Corrupt, TraceRaised) as error:
            log.info("%s cannot be made again without its client: %s", stored.info.label, error)
        return made or self._compiled(key)

    def _compiled(self, key: CallKey) -> Entry | None:
        """Compile a program whose trace the lab's cache has from another kind of machine."""
        seconds, share = self._names.seconds_shared(key.base), self.cache.share
        if seconds is None or share is None:
            return None
        portable_key = key.components().portable_key
        found = share.get_trace(portable_key, seconds)
        if found is None:
            return None
        stored, trace = found
        try:
            request = request_of(stored)
            if _key_of(request).text != key.text:
                raise Corrupt("it is the trace of another program")
            signature = request.lookup.signature
            make = functools.partial(serialization.compiled, stored.facts, trace, signature, request.name)
            built = self._recorded(key, request, make)
        except Exception as error:
            share.reject_trace(portable_key, _first_line(error))
            return None
        share.count_found(sum(stored.info.seconds.values()) - stored.info.seconds.get("compile", 0.0))
        built.why_remade = "the lab's cache has its trace, from another kind of machine"
        return self._keep(key, self._entry(info_of(key.text, request, built), built), request, b"")

    def _made_again(
        self,
        key: CallKey,
        stored: Stored,
        request: Prepare,
        why: str,
        capture: bytes | memoryview | None = None,
    ) -> Entry | None:
        if capture is None:
            capture = self.cache.store.blob(stored.capture)
        if capture is None:
            return None
        compared = serialization.evidence_in(stored.facts)
        entry, made = self._once.get(key.text, lambda: self._make_equal(key, request, bytes(capture), compared))
        if made:
            before, now = stored.info, entry.info
            now.hits, now.saved, now.pinned = before.hits, before.saved, before.pinned
            entry.program.why_remade = why
        return entry

    def _make_equal(self, key: CallKey, request: Prepare, payload: bytes, evidence: bytes) -> Entry:
        """Make a program again that was compared with a client's trace; its evidence must be the same.

        Raises:
            CaptureError: the new trace gives a different program.
        """
        built = self._build(key, request, payload)
        if built.evidence != evidence:
            raise CaptureError(f"tracing {request.name} again gives a different program")
        built.forget_trace()
        return self._keep(key, self._entry(info_of(key.text, request, built), built), request, payload)

    def _trace(self, request: Prepare, payload: bytes) -> CompiledProgram:
        lookup = request.lookup
        for last in (False, True):
            start = time.perf_counter()
            # Load the capture for each trace: the key does not include changes that a trace makes in captured objects.
            self.counters.add(captures_loaded=1)
            loaded = program.loaded_for(lookup, payload)
            load_seconds = time.perf_counter() - start
            self.counters.add(traces=1)
            try:
                built = program.from_capture(loaded, lookup.signature, request.name, not lookup.unverified)
            except BaseException as error:
                log.info("tracing %s failed: %s: %.200s", request.name, type(error).__name__, error)
                if isinstance(error, AmbientInput) and str(error) == ambient.OF_GENERATORS and not last:
                    continue  # another thread may have changed the generator
                raise TraceRaised(error, loaded, is_final=_is_final(error)) from error
            finally:
                context.packages().record_loaded()
            built.seconds = {"load": load_seconds, **built.seconds}
            return built
        raise AssertionError("unreachable")

    def remove(self, prefix: str) -> list[str]:
        """Remove programs, refusals and strikes whose key starts with `prefix`, or whose function has that name.

        Returns:
            The keys of the removed programs, and of those that had only strikes.
        """
        self._forget_candidates(prefix)
        for key, (_, name) in self._refusals.items():
            if key.startswith(prefix) or name == prefix:
                self._refusals.pop(key)
        removed = [info.key for info in self.cache.remove(prefix)]
        return list(dict.fromkeys([*removed, *self.journal.strikes.clear(prefix)]))

    def _forget_candidates(self, prefix: str) -> None:
        with self._lock:
            for key, candidate in dict(self._candidates).items():
                if key.startswith(prefix) or candidate.request.name == prefix:
                    self._forget(key)

    def refusal(self, key: str) -> str:
        """Return the reason why the daemon does not trace a function again; empty if there is none."""
        found = self._refusals.get(key)
        return "" if found is None else str(found[0])

    def _count_hit(self, entry: Entry) -> None:
        self.counters.add(hits=1, compile_seconds_saved=self.cache.used(entry))


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def _is_final(error: BaseException) -> bool:
    """Return whether a failure is unrelated to the function, so that its next trace may succeed."""
    if isinstance(error, CaptureError):
        return isinstance(error, TraceBusy)
    return isinstance(error, (JitserverError, MemoryError))


def _digest_of(lookup: Lookup) -> bytes:
    """Return a digest of everything that a client sends about a program.

    A program is used only if this digest is equal, too: a mistake in the call key must not return one function's
    program for a different function.
    """
    return digest(_encode(msgspec.structs.replace(lookup, locations=b"", manifests=())))


def _check_lookup(entry: Entry, lookup: Lookup) -> None:
    if entry.program.lookup_digest != _digest_of(lookup):
        raise CaptureError("a different function has the same call key")


def _key_of(request: Prepare) -> CallKey:
    return keys.call_key(request.lookup).under(request.manifest)


def request_of(stored: Stored) -> Prepare:
    """Return the request from which a stored program was made.

    Raises:
        Corrupt: the stored data is not a request.
    """
    return unpacked(stored.request, Prepare)
