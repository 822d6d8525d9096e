"""The engine: programs by call key, made once, and run."""

import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax

from jitclient.capture import class_count, load, world
from jitclient.errors import AmbientInput
from jitclient.notices import labels
from jitclient.wire import values
from jitclient.wire.explaining import Explain, Explained, Why
from jitclient.wire.looking import DeviceMemory
from jitclient.wire.messages import DeviceInfo, EntryInfo, Lookup, Prepare, Signature
from jitserver.cache.entry import Entry
from jitserver.cache.memory import Memory
from jitserver.cache.once import Once
from jitserver.cache.recent import Recent
from jitserver.counters import Counters
from jitserver.engine import ambient, arrays, context, explaining, inspecting, keys, program, warned
from jitserver.engine.failures import TraceFailed
from jitserver.engine.program import Program, Say

_MOST_REFUSALS = 10_000


class Engine:
    """Holds the programs of this daemon. Safe to use from many threads."""

    def __init__(self, counters: Counters) -> None:
        # A call then runs on the thread that asked for it: four times faster for small ones, and callbacks cannot
        # deadlock against the thread that waits for them (FINDINGS; jax #25861).
        jax.config.update("jax_cpu_enable_async_dispatch", False)
        # Tracebacks are trimmed to the user's frames in one place: failures.py.
        jax.config.update("jax_traceback_filtering", "off")
        self.counters = counters
        self.entries = Memory()
        self._once: Once[Entry] = Once()
        self._ambient: Recent[tuple[str, str]] = Recent(_MOST_REFUSALS)  # what was read, the function's name
        world.watch()
        warned.watch()
        context.of_process()  # starts the backend now, not under the first call

    # ---- programs

    def find(self, lookup: Lookup) -> Entry | None:
        """The program of a lookup, if it is there: no user code is touched.

        Raises:
            AmbientInput: it was tried before, and read the world while it was traced.
        """
        key = keys.call_key(lookup)
        refusal = self._ambient.get(key)
        if refusal is not None:
            raise AmbientInput(refusal[0])
        entry = self.entries.get(key)
        if entry is not None:
            self._count_hit(entry)
        return entry

    def prepare(self, request: Prepare, payload: bytes, say: Say) -> tuple[Entry, bool]:
        """The program of a request, and whether it was this call that made it.

        Others who ask for the same meanwhile wait for it.

        Raises:
            CaptureError: the capture cannot be loaded.
            TraceFailed: the user's function raised something while it was traced, or its results cannot be named.
        """
        key = keys.call_key(request.lookup)
        entry, made = self._once.get(key, lambda: self.entries.get(key), lambda: self._make(key, request, payload, say))
        if not made:
            self._count_hit(entry)
        return entry, made

    def _make(self, key: str, request: Prepare, payload: bytes, say: Say) -> Entry:
        self.counters.add(misses=1)
        lookup = request.lookup
        makeup = explaining.makeup_of(lookup, request.parts)
        if request.traced is not None:
            built = program.from_client(payload, request.traced, lookup.signature, request.name, say)
        else:
            built = self._trace(key, request, payload, say)
        self.counters.add(compiles=1, compile_seconds=sum(built.seconds.values()))
        entry = Entry(_info(key, request, built), built, makeup)
        self.entries[key] = entry
        return entry

    def _trace(self, key: str, request: Prepare, payload: bytes, say: Say) -> Program:
        lookup = request.lookup
        for last in (False, True):
            start = time.perf_counter()
            # Anew for each trace: what one leaves behind in captured objects is not in the key of the next.
            self.counters.add(captures_loaded=1)
            loaded = load(payload, lookup.locations)
            load_seconds = time.perf_counter() - start
            self.counters.add(traces=1)
            try:
                built = program.from_capture(loaded, lookup.signature, request.name, say)
            except BaseException as error:
                if isinstance(error, AmbientInput):
                    if str(error) == ambient.OF_GENERATORS and not last:
                        continue  # it may have been another thread
                    self._ambient[key] = str(error), request.name
                raise TraceFailed(error, loaded) from error
            finally:
                context.packages().meet_loaded()
            built.seconds = {"load": load_seconds, **built.seconds}
            return built
        raise AssertionError("unreachable")

    def remove(self, prefix: str) -> list[Entry]:
        """Forgets programs and refusals whose key starts with `prefix`, or whose function has that name.

        Returns:
            The programs.
        """
        removed = self.entries.matching(prefix)
        for entry in removed:
            self.entries.pop(entry.key, None)
        for key in list(self._ambient):
            _, name = self._ambient.get(key, ("", ""))
            if key.startswith(prefix) or name == prefix:
                self._ambient.pop(key, None)
        return removed

    def _count_hit(self, entry: Entry) -> None:
        entry.info.hits += 1
        entry.info.last_used = time.time()
        saved = sum(entry.info.seconds.values())
        entry.info.saved += saved
        self.counters.add(hits=1, compile_seconds_saved=saved)

    def key_of(self, lookup: Lookup) -> str:
        """The call key of a lookup."""
        return keys.call_key(lookup)

    # ---- calls and arrays

    def run(self, built: Program, arguments: Sequence[Any]) -> Any:
        """Runs a program on resident arrays and arrays off the wire."""
        self.counters.add(calls=1)
        start = time.monotonic()
        if built.settings:
            with context.entered(built.settings), _floating_point_errors():
                results = built.run(*arguments)
        else:
            results = built.run(*arguments)
        built.last_call = end = time.monotonic()
        built.calls += 1  # no lock: it would cost more than a count that is lost once in a blue moon
        built.call_seconds += end - start
        return results

    on_device = staticmethod(arrays.on_device)
    resident = staticmethod(arrays.resident)
    to_host = staticmethod(arrays.to_host)
    let_go = staticmethod(arrays.let_go)
    share = staticmethod(arrays.share)
    nbytes = staticmethod(arrays.nbytes)

    # ---- looking inside

    inspect = staticmethod(inspecting.inspected)

    def explain(self, request: Explain) -> Explained:
        """Whether a program is there, and where it differs from the nearest other one."""
        refusal = self._ambient.get(keys.call_key(request.lookup), ("", ""))[0]
        return explaining.explained(self.entries, request, refusal)

    def why(self, request: Why) -> Explained | None:
        """Where a cached program differs from another; None if one of them is not there."""
        return explaining.why(self.entries, request)

    def devices(self) -> tuple[str, ...]:
        """The devices, as people know them."""
        return context.device_names()

    def device_infos(self) -> list[DeviceInfo]:
        """The devices, as a client asks for them."""
        return context.device_infos()

    def device_memory(self) -> list[DeviceMemory]:
        """The memory of the devices, as far as they tell."""
        return context.device_memory()

    def platform(self) -> str:
        """What programs are compiled for: "cpu", "cuda", ..."""
        return context.export_platform()

    def classes(self) -> int:
        """Distinct user classes that JAX's registry may hold for ever."""
        return class_count()

    def replaced_packages(self, names: Iterable[str] = ()) -> list[str]:
        """Packages that this daemon has loaded and that the disk has otherwise by now."""
        return context.packages().replaced(names)

    def versions(self, names: Iterable[str] = ("jax", "jaxlib")) -> dict[str, str]:
        """The versions of packages; without names, of those that must agree with a client's."""
        return {name: context.packages().version(name) for name in names}


@contextlib.contextmanager
def _floating_point_errors() -> Iterator[None]:
    """What `jax.debug_nans` raises where nothing can be run again, as the class that users know."""
    try:
        yield
    except Exception as error:
        if type(error).__name__ != "InternalFloatingPointError":  # jax has no public name for it
            raise
        name, kind = error.args
        raise FloatingPointError(f"invalid value ({kind}) encountered in {name}") from None


def _info(key: str, request: Prepare, built: Program) -> EntryInfo:
    signature: Signature = request.lookup.signature
    now = time.time()
    return EntryInfo(
        key=key,
        function_key=request.lookup.function_key,
        name=request.name,
        where=request.where,
        label=labels.of_call(request.name, signature.leaves),
        signature=labels.of_call(request.name, signature.leaves, most=len(signature.leaves)),
        options=_options_text(signature),
        context={
            **context.of_process(),
            **{name: context.packages().version(name) for name in request.lookup.packages},
            **{name: str(value) for name, value in built.settings},
        },
        seconds=dict(built.seconds),
        saved=0.0,
        hits=0,
        created=now,
        last_used=now,
        code_bytes=built.code_bytes,
    )


def _options_text(signature: Signature) -> str:
    def text(value: values.Value) -> str:
        if isinstance(value, values.Sequence):
            return "(" + ", ".join(map(text, value.items)) + ")"
        return "<object>" if isinstance(value, (values.Position, values.Mapping)) else repr(value)

    options = [f"{name}={text(value)}" for name, value in signature.options]
    options += [f"donated leaves={signature.donated}"] if signature.donated else []
    statics = [f"argument {where!r}={text(value)}" for where, value in signature.statics]
    return ", ".join(options + statics)
