"""Making of programs from captures, or from programs that a client traced: trace, lower, compile."""

import contextlib
import dataclasses
import functools
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from jitclient.capture.codec import values
from jitclient.capture.load import Loaded, load
from jitclient.capture.results.writer import TraceObjects
from jitclient.core import events
from jitclient.errors import CaptureError
from jitclient.jaxside import compilation_cache, trace_imports, tree
from jitclient.jaxside.avals import abstract
from jitclient.jaxside.callbacks import functions_of
from jitclient.jaxside.evidence import evidence_of, order_free
from jitclient.jaxside.ffi import foreign_functions, raise_if_unknown, register
from jitclient.jaxside.leaked_tracers import raise_if_used
from jitclient.jaxside.over_leaves import OverLeaves
from jitclient.wire.array_transport import host_form, nbytes_of
from jitclient.wire.messages import Evidence, ForeignFunction, Lookup, Signature, Slot, Spec, TracedProgram
from jitserver.programs import callbacks, context, executables, placement, portable
from jitserver.programs.devices import device_arrays, memories
from jitserver.programs.devices.backend import backend
from jitserver.programs.devices.memories import Bytes, bytes_of_specs
from jitserver.programs.traces import ambient, lock, output
from jitserver.store.journal import EMPTY_SLOT

_NO_EVIDENCE = Evidence()
_SORTS = ("stablehlo.sort", "chlo.top_k")
"""Operations whose comparison XLA's CPU runtime cannot serialize any more after the first run (jax 0.10 to 0.12)."""
_BYTES_PER_LINE = 12 << 10
Deref = values.Deref

_JITTED = type(jax.jit(lambda: None))


@dataclasses.dataclass
class CompiledProgram:
    """An executable over flat leaves, with the information that callers need. Running it runs no user code."""

    # A `jax.stages.Compiled` or `Executables`, or a `_Unloaded` in its place: takes and returns leaves.
    run: Any
    specs: tuple[Spec, ...]  # specs of the arguments' leaves
    results: tuple[Spec, ...]
    tree: bytes  # tree of the results
    donated: tuple[int, ...]
    may_raise: bool
    settings: tuple[tuple[str, Any], ...]
    code_bytes: int
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    made: bytes = b""  # objects from its trace, to which the tree refers by negative positions
    slots: tuple[Slot, ...] = ()  # interfaces of its callbacks
    callbacks: bytes = b""  # functions of its callbacks, as objects from its trace
    foreign: tuple[ForeignFunction, ...] = ()  # registered before its executable is loaded
    has_effects: bool = False
    # XLA can serialize the executable only before its first run.
    must_serialize_first: bool = False
    why_remade: str = ""  # why the program was made again from its capture on disk, if it was
    is_shared: bool = False  # the program comes from the lab's cache
    is_found: bool = False  # the executable comes from JAX's own cache, or from jitserver's
    found_key: str = ""  # the key under which the executable was found by its text, if it was
    calls: int = 0
    call_seconds: float = 0.0
    slowest: float = 0.0  # seconds of the slowest call, without the first, which takes longer
    # The latest measurement of a call, if calls return before they are computed: on the device, and before that.
    device_seconds: float = 0.0
    queue_seconds: float = 0.0
    queued_seconds: float = 0.0  # of all calls
    last_call: float = 0.0  # end of the last call, by time.monotonic
    needs: Bytes = dataclasses.field(default_factory=dict)  # bytes of the results, by memory
    nbytes: int = 0  # those in the memory of the default device, where a plain call has all
    mark: bytes = EMPTY_SLOT  # slot content of the crash journal while the program runs
    suspect: str = ""  # call key, as long as the program has strikes for running
    # For `in_flight.py`: reference to a result of the latest launch, and whether the crash journal holds the program.
    latest: Callable[[], Any] | None = None
    is_in_flight: bool = False
    evidence: bytes = b""  # digest of the trace's evidence, if the client compares it
    lookup_digest: bytes = b""  # digest of the lookup that the program answers
    trace: Evidence = _NO_EVIDENCE  # the whole evidence, until a client has compared it
    order_free: Callable[[], bytes] = bytes  # computes the digest of the evidence without its order, until then
    agreed_order_free: bytes = b""  # that digest, if the client's trace had a different order
    exported: Callable[[], bytes] = bytes  # serializes the trace (see `portable`), until then; empty if it cannot be

    direct: Any = None
    """The C++ function to which `run` passes the leaves; None before the first run, and if there is none."""

    is_multi_device: bool = False  # over several devices

    plain: tuple[tuple[tuple[int, ...], Any, int], ...] | None = None
    """Shape, dtype and bytes of each argument, if calls are plain: see `jitserver/daemon/plain_runs.py`."""

    def __post_init__(self) -> None:
        # Functions that make the leaves from received bytes.
        self.decoders = tuple(map(device_arrays.decoder, self.specs))
        self.needs = bytes_of_specs(self.results)
        self.nbytes = self.needs.get(memories.default(), 0)
        self.is_multi_device = any(map(device_arrays.is_multi_device, (*self.specs, *self.results)))
        is_special = self.donated or self.settings or self.may_raise or self.suspect
        if not is_special and all(map(device_arrays.is_plain, (*self.specs, *self.results))):
            self.plain = tuple([(*host_form(spec), nbytes_of(spec)) for spec in self.specs])

    def unload(self, reload: Callable[[], "CompiledProgram"]) -> None:
        """Free the executable until it is needed; `reload` then returns an equal program that has one."""
        self.run, self.direct = _Unloaded(self, reload), None

    def reload(self, same: "CompiledProgram") -> None:
        """Take over the executable of an equal program, for a call that follows."""
        self.last_call = time.monotonic()
        self.run = same.run

    def shown_evidence(self) -> Evidence:
        """Return the evidence that clients compare with their own traces."""
        return self.trace if self.trace.digest else Evidence(self.evidence, order_free=self.agreed_order_free)

    def forget_trace(self) -> None:
        """Free the data that is needed only for a comparison with another trace."""
        self.trace, self.order_free, self.exported = _NO_EVIDENCE, bytes, bytes

    def set_direct(self) -> None:
        """Set `direct` after a run, from a private attribute of `Compiled` that may be missing."""
        run = self.run  # read once: another thread may replace it
        found = getattr(run, "_call", None) if isinstance(run, jax.stages.Compiled) else None
        self.direct = found if type(found) is _JITTED else None


class _Unloaded:
    """Placeholder for the freed executable of a program, which loads the executable at its first use."""

    def __init__(self, program: CompiledProgram, reload: Callable[[], CompiledProgram]) -> None:
        # A strong reference would be a cycle: only a garbage collection would free a program that no session holds.
        self._program = weakref.ref(program)
        self._reload = reload

    def __call__(self, *leaves: Any) -> Any:
        return self._reloaded()(*leaves)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reloaded(), name)

    def _reloaded(self) -> Any:
        reloaded = self._reload()
        program = self._program()
        if program is not None:
            program.reload(reloaded)
        return reloaded.run


def loaded_for(lookup: Lookup, payload: bytes) -> Loaded:
    """Load a capture under the settings of its caller, because loading may run user code."""
    with context.entered(_settings(lookup.signature, values.no_deref)):
        return load(payload, lookup.locations)


def from_capture(loaded: Loaded, signature: Signature, name: str, compared: bool = True) -> CompiledProgram:
    """Trace and compile a captured function.

    Args:
        loaded: the capture.
        signature: the signature for which the function is traced.
        name: the name of the function.
        compared: whether to keep the evidence of the trace.

    Raises:
        CaptureError: a client cannot rebuild the tree of results or a callback, or the program has other side effects.
        BaseException: the user's function raised it during the trace.
    """
    over_leaves = _over_leaves(loaded, signature, name)
    built = _build(over_leaves.function, signature, loaded, lambda: over_leaves.out_tree, compared)
    made = TraceObjects(loaded)
    built.tree = tree.encode(tree.structure_of(over_leaves.out_tree), loaded.index_of, made.add)
    built.made = made.to_bytes()
    return built


def _described(loaded: Loaded | None, functions: Sequence[callbacks.Function]) -> bytes:
    """Return the encoded callbacks, from which clients rebuild them; empty for a program that a client traced."""
    if loaded is None:
        return b""
    made = TraceObjects(loaded)
    for function in functions:
        made.add(function)
    try:
        return made.to_bytes()
    except CaptureError as error:
        raise CaptureError(f"the program calls back a function that the client cannot rebuild: {error}") from error


def from_client(program: bytes, traced: TracedProgram, signature: Signature, name: str) -> CompiledProgram:
    """Compile a program that a client traced.

    The client describes the results, because the program's text has no weak types.

    Raises:
        CaptureError: the program cannot be read, or the results do not match the client's description.
    """
    built = from_portable(program, traced.foreign, traced.results, signature, name)
    built.results, built.tree, built.foreign = traced.results, traced.tree, traced.foreign
    built.seconds["trace"] += traced.seconds
    built.evidence, built.agreed_order_free = traced.evidence.digest, traced.evidence.order_free
    built.exported = lambda: program
    return built


def from_portable(
    program: bytes | memoryview,
    foreign: tuple[ForeignFunction, ...],
    results: tuple[Spec, ...],
    signature: Signature,
    name: str,
) -> CompiledProgram:
    """Compile a program that another process traced, of which nothing is known beyond its text.

    Raises:
        CaptureError: the program cannot be read, or its results are not of the shapes that are expected.
    """
    function = portable.function_of(program, name)
    register(foreign)
    built = _build(function, signature)
    if [spec.shape for spec in results] != [spec.shape for spec in built.results]:
        raise CaptureError("the program's results do not match their description")
    return built


def text_of_capture(loaded: Loaded, signature: Signature, name: str, what: str) -> str:
    """Return the "jaxpr" or "stablehlo" of a captured function by tracing it again."""
    over_leaves = _over_leaves(loaded, signature, name)
    deref, out_tree = loaded.object_at, lambda: over_leaves.out_tree
    with context.entered(_settings(signature, deref)), output.withheld():
        traced, lowered = _lowered(over_leaves.function, signature, deref, out_tree, {})
    return str(traced.jaxpr) if what == "jaxpr" else str(lowered.as_text())


def text_of_client(program: bytes, what: str) -> str:
    """Return the "stablehlo" of a program that a client traced; empty for "jaxpr", which only the client has."""
    return "" if what == "jaxpr" else portable.from_bytes(program).mlir_module()


def _over_leaves(loaded: Loaded, signature: Signature, name: str) -> OverLeaves:
    statics = [(where, values.decode(value, loaded.object_at)) for where, value in signature.statics]
    structure = tree.decode(signature.tree, loaded.object_at)
    return OverLeaves(loaded.fn, name, structure, statics)


def _settings(signature: Signature, deref: Deref) -> tuple[tuple[str, Any], ...]:
    return tuple((key, values.decode(value, deref)) for key, value in signature.context)


def _lowered(
    function: Callable[..., Any],
    signature: Signature,
    deref: Deref,
    out_tree: Callable[[], Any],
    seconds: dict[str, float],
    is_portable: bool = False,
) -> tuple[Any, Any]:
    """Return the traced and the lowered stage of a function; one that `is_portable` runs no user code."""
    options = {key: values.decode(value, deref) for key, value in signature.options}
    jitted = placement.jitted(function, signature, options)
    turn = contextlib.nullcontext() if is_portable else lock.traces.taken()
    # Reads that it notices may be those of a trace on another thread.
    check = contextlib.nullcontext() if is_portable else ambient.refused()
    with turn, _timed(seconds, "trace", "tracing"), check, trace_imports.evaluated():
        traced = jitted.trace(*map(abstract, signature.leaves))
        raise_if_used(jitted, len(traced.jaxpr.in_avals), signature.leaves)
    callbacks.check_effects(traced.jaxpr)
    if backend().runs_on_host:
        raise_if_unknown(traced.jaxpr, jax.default_backend())
    with _timed(seconds, "lower", "lowering"):
        lowered = placement.lowered(traced, function.__name__, signature, options, out_tree(), deref)
    return traced, lowered


def _build(
    function: Callable[..., Any],
    signature: Signature,
    loaded: Loaded | None = None,
    out_tree: Callable[[], Any] = lambda: None,
    compared: bool = False,
) -> CompiledProgram:
    seconds: dict[str, float] = {}
    deref = values.no_deref if loaded is None else loaded.object_at
    settings = _settings(signature, deref)
    with context.entered(settings), output.withheld():
        traced, lowered = _lowered(function, signature, deref, out_tree, seconds, loaded is None)
        evidence = _NO_EVIDENCE
        without_order: Callable[[], bytes] = bytes
        if compared and loaded is not None:
            evidence = evidence_of(traced, lowered, loaded.index_of)
            without_order = functools.partial(order_free, traced, lowered, loaded.index_of)
        text = lowered.as_text()
        must_serialize_first = any(sort in text for sort in _SORTS)
        functions = functions_of(traced, lowered)
        slots, described = tuple(map(callbacks.slot_of, functions)), _described(loaded, functions)
        foreign = foreign_functions(traced.jaxpr, jax.default_backend())
        with _timed(seconds, "compile", "compiling"), executables.compiling(text):
            found_before = compilation_cache.found_by_thread()
            compiled = callbacks.Executables(slots, lowered) if slots else lowered.compile()
            is_found = compilation_cache.found_by_thread() != found_before
            found_key = executables.found_key() if is_found else ""
    export = functools.partial(portable.to_bytes, traced, function.__name__, signature.leaves, foreign, settings)
    return CompiledProgram(
        run=compiled,
        specs=signature.leaves,
        results=placement.results(traced.out_avals, compiled, signature),
        tree=tree.UNKNOWN,
        donated=signature.donated,
        may_raise=bool(slots) or context.checks_values(settings),
        settings=settings,
        seconds=seconds,
        code_bytes=_code_bytes(compiled, text),
        evidence=evidence.digest,
        trace=evidence,
        order_free=without_order,
        must_serialize_first=must_serialize_first,
        is_found=is_found,
        found_key=found_key,
        slots=slots,
        callbacks=described,
        foreign=foreign,
        has_effects=bool(traced.jaxpr.effects),
        # Shardings of results are no part of a trace.
        exported=bytes if slots or signature.shardings else export,
    )


@contextlib.contextmanager
def _timed(seconds: dict[str, float], label: str, phase: str) -> Iterator[None]:
    events.log.begin(phase)
    start = time.perf_counter()
    yield
    seconds[label] = time.perf_counter() - start


def _code_bytes(compiled: Any, text: str) -> int:
    """Return the bytes of an executable in memory; an estimate from its text where XLA does not report them.

    The estimate is `OVERHEAD_BYTES` and 12 KiB for each line of the text, in which each constant has a line. In
    processes that had made others before (jax 0.10.2 on the CPU), 40 layers took 8.1 MiB, 30 of attention 15.6, and the
    gradients of 40 and 120 layers 31 and 94; their estimates are 10, 16, 24 and 70. A program of elementwise operations
    takes less: 200 of them 2.7 MiB, for which the estimate is 15.
    """
    analysis = compiled.memory_analysis()
    reported = int(getattr(analysis, "generated_code_size_in_bytes", 0) or 0)
    return reported or text.count("\n") * _BYTES_PER_LINE + len(text)
