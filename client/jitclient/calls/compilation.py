"""Programs of calls: found on the daemon, or made there, in agreement with the caller's own trace.

The trace of the caller decides. On a miss, the daemon traces the function from its capture while this process traces
the function itself, as `jax.jit` would. If both traces agree, the daemon's program is used, here and in all other
processes. If they differ, or jitserver itself fails, the own trace counts: its program is sent to the daemon, or runs
here.
"""

import contextlib
import functools
import importlib.util
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from jitclient.calls.capture_costs import CaptureCosts
from jitclient.calls.compile_log import CompileLog
from jitclient.calls.deps import Input, stamp_of
from jitclient.calls.identity import Identity, identify, manifests_of, parts_of_traced, signature_of
from jitclient.calls.own_trace import Exported, OwnTrace
from jitclient.calls.program import Program
from jitclient.calls.specialisation import Specialisation
from jitclient.capture.ambient.patches import find_patches
from jitclient.capture.budget import Budget
from jitclient.capture.codec import values
from jitclient.capture.dump import Capture
from jitclient.capture.manifest import covers, packages_of, state_digest
from jitclient.capture.results.reader import CallbackFunctions, RebuiltObjects
from jitclient.core import progress
from jitclient.core.notices import warn
from jitclient.core.settings import settings
from jitclient.errors import (
    AmbientInput,
    ArrayLost,
    CaptureError,
    CaptureTooSlow,
    CrashesDaemon,
    DaemonError,
    ProgramsDiffer,
    SessionBusy,
)
from jitclient.jaxside import after_fork, tree
from jitclient.jaxside.context import check_carried, on_mesh
from jitclient.jaxside.evidence import difference_of_evidence
from jitclient.jaxside.static_leaves import StaticLeaf
from jitclient.session import programs
from jitclient.session.failures import TraceFailed
from jitclient.session.session import Session
from jitclient.wire import labels
from jitclient.wire.messages import (
    DeviceInfo,
    Evidence,
    Lookup,
    Manifest,
    Prepare,
    Prepared,
    Settle,
    State,
    Traced,
    Verb,
)

# Maximum number of traces of a function whose declared inputs change during the trace.
_MAX_TRACES = 3
_CHANGES = "the trace changes"
_EMPTY = Manifest()


class _InputsChangedError(Exception):
    """Change of a declared input during the trace."""


class _DiffersError(Exception):
    """Own trace that differs, or may differ, from the daemon's, so that each process must trace the function."""


def program_of(
    session: Session, wanted: Specialisation, capture: Callable[..., Capture], own: OwnTrace, costs: CaptureCosts
) -> Program:
    """Return the program of a call.

    Args:
        session: the session with the daemon.
        wanted: the function, options and signature to compile for.
        capture: captures the function in its current state, with extras, and perhaps within a budget.
        own: the trace of this process, which has not run yet.
        costs: costs of the function's captures.

    Raises:
        CaptureError: the call must run in this process.
        DaemonError: there is no daemon to ask, or it is gone.
        Raised: the function raised an exception while this process traced it.
    """
    for _ in range(_MAX_TRACES):
        try:
            return _Making(session, wanted, capture, own, costs).program()
        except _InputsChangedError:
            own.forget()
    raise CaptureError("the declared inputs change during the trace")


def capture_budget(wanted: Specialisation, costs: CaptureCosts) -> Budget | None:
    """Return the budget of a capture that starts now; None if the call may need its capture to run on the daemon."""
    may_trace = _has_jax() and _can_leave(wanted) and settings().fallback == "local"
    return costs.budget() if may_trace else None


class _Making:
    """Sequence of steps from a call to its program."""

    def __init__(
        self,
        session: Session,
        wanted: Specialisation,
        capture: Callable[..., Capture],
        own: OwnTrace,
        costs: CaptureCosts,
    ) -> None:
        self._session = session
        self._wanted = wanted
        self._capture = capture
        self._own = own
        self._costs = costs
        # Only of the first capture: a later one is compared with it.
        self._budget: Budget | None = None
        self._seen: tuple[str, Sequence[DeviceInfo]] | None = None
        self._extras: tuple[Any, ...] = ()
        # Last capture, with these extras; None if the function cannot be captured.
        self._captured: Capture | None = None
        # Note for the user, shown once the own trace is on the daemon.
        self._note = ""

    def program(self) -> Program:
        """Return the program. The exceptions are those of `program_of`."""
        self._budget = capture_budget(self._wanted, self._costs)
        try:
            with _failures_to_capture_error():
                identity = identify(self._wanted, self._take_capture)
        except CaptureError as error:
            return self._without_capture(error)
        try:
            with _failures_to_capture_error():
                found = self._found(identity)
        except CaptureError as error:
            return self._of_own_trace(error)
        if found is not None:
            return found
        try:
            if identity.own_trace_reason() is None:
                return self._made(identity)
            return self._made_here(identity)
        except CaptureError as error:
            return self._of_own_trace(error)

    def _take_capture(self, extras: tuple[Any, ...]) -> Capture:
        """Capture the function with extras; if they cannot be captured, keep a capture of the function alone."""
        self._captured, self._extras = None, extras
        try:
            self._captured = self._capture(extras, self._budget)
        except CaptureTooSlow:
            raise
        except CaptureError:
            if extras:
                self._take_capture(())
            raise
        return self._captured

    # ---- found

    def _found(self, identity: Identity) -> Program | None:
        """Look up the program; return None if no other process has made it."""
        session, wanted = self._session, self._wanted
        for unverified in (False,) if self._must_agree() else (False, True):
            lookup = msgspec.structs.replace(identity.lookup, unverified=unverified)
            log = CompileLog(wanted, identity.parts)
            with self._progress() as report_phase:
                found, generation = programs.look_up(
                    session, lookup, manifests_of, identity.captured.object_at, report_phase
                )
            if found.prepared is not None:
                program = self._of_daemon(identity, found.prepared, generation)
                if session.settings.verify == "always" and self._must_agree():
                    self._check_hit(identity, found.prepared)
                log.report(session, lookup, found.prepared)
                return program
        return None

    def _check_hit(self, identity: Identity, prepared: Prepared) -> None:
        """Trace the function in this process as well, and compare the trace with the program that was found.

        Raises:
            ProgramsDiffer: the program that was found is stale.
        """
        self._trace(identity.inputs)
        ref, there = identity.captured.index_of, prepared.evidence
        in_order = self._own.evidence(ref).digest == there.digest
        is_same = in_order or self._is_reordered(identity, there)
        structure, functions = self._remade(identity, prepared)
        differs_otherwise = self._own.difference_of_results(
            prepared.results, tree.unflattener_of_sent(structure)
        ) or self._own.difference_of_callbacks(functions, ref, in_order=in_order)
        if differs_otherwise or not is_same:
            name = self._wanted.name
            raise ProgramsDiffer(
                f"{name}: the cached program differs from the trace in this process. Please report this, with the "
                f"function. Run `jitserver cache rm {name}` to remove the program."
            )

    def _is_reordered(self, identity: Identity, there: Evidence) -> bool:
        """Return whether the trace of a program that was found equals the own trace except for its order.

        The daemon has kept only a digest of the trace, so it traces the function again.
        """
        mine = self._own.order_free(identity.captured.index_of)
        if not mine or there.order_free:
            return bool(mine) and mine == there.order_free
        log = CompileLog(self._wanted, identity.parts)
        try:
            again, _ = self._from_capture(identity, identity.lookup, log, None, force_trace=True)
        except TraceFailed:
            return False
        return again.evidence.digest == there.digest and mine == self._order_free_there(identity)

    def _order_free_there(self, identity: Identity) -> bytes:
        found: bytes = self._session.ask(Verb.ORDER_FREE, identity.lookup, bytes)
        return found

    # ---- made on the daemon

    def _made(self, identity: Identity) -> Program:
        """Make the daemon compile the program from the capture, and compare it with the trace of this process."""
        session, wanted, lookup = self._session, self._wanted, identity.lookup
        compared = self._must_agree()
        if not compared:
            lookup = msgspec.structs.replace(lookup, unverified=True)
        log = CompileLog(wanted, identity.parts)
        manifest = None if compared else _EMPTY
        meanwhile = functools.partial(self._trace_meanwhile, identity) if compared else None
        if compared:
            # Ask for the devices now: while the daemon traces, the question would need another connection.
            self._backend()
        try:
            with _failures_to_capture_error():
                prepared, generation = self._from_capture(identity, lookup, log, manifest, meanwhile)
        except TraceFailed as failed:
            if not compared and (_is_operation(self._wanted) or not _has_jax()):
                raise failed.error from None
            self._trace(identity.inputs)
            if isinstance(failed.error, AmbientInput):
                raise self._refused(identity, str(failed)) from None
            return self._explained(identity, str(failed))
        if not compared:
            log.report(session, lookup, prepared)
            with _failures_to_capture_error():
                return self._of_daemon(identity, prepared, generation)
        try:
            with _failures_to_capture_error():
                program = self._agreed(identity, prepared, generation)
        except _DiffersError as error:
            return self._explained(identity, str(error))
        log.report(session, lookup, prepared)
        return program

    def _from_capture(
        self,
        identity: Identity,
        lookup: Lookup,
        log: CompileLog,
        manifest: Manifest | None,
        meanwhile: Callable[[], None] | None = None,
        force_trace: bool = False,
    ) -> tuple[Prepared, int]:
        wanted, captured = self._wanted, identity.captured
        request = Prepare(lookup, wanted.name, _where(wanted.fun), None, log.parts(), manifest, force_trace)
        with self._progress() as report_phase:
            return programs.make(self._session, request, captured.payload, captured.object_at, report_phase, meanwhile)

    def _agreed(self, identity: Identity, prepared: Prepared, generation: int) -> Program:
        """Return the daemon's program if the own trace agrees with it, and report the agreement to the daemon.

        Raises:
            _DiffersError: the traces differ, or the trace changed something.
        """
        own = self._own
        own.check_arguments()
        if own.is_foreign():
            raise _DiffersError(own.local_only_reason())
        after = self._unchanged(identity)
        structure, functions = self._remade(identity, prepared)
        ref = identity.captured.index_of
        difference, order_free = difference_of_evidence(own.evidence(ref), prepared.evidence), b""
        if difference and (mine := own.order_free(ref)):
            # Empty if another client has settled the program in the meantime.
            there = self._order_free_there(identity)
            if mine == there or (not there and self._is_reordered(identity, prepared.evidence)):
                difference, order_free = "", mine
        difference = (
            difference
            or own.difference_of_results(prepared.results, tree.unflattener_of_sent(structure))
            or own.difference_of_callbacks(functions, ref, in_order=not order_free)
        )
        if difference:
            raise _DiffersError(f"the daemon's trace differs: {difference}")
        self._settle(identity, order_free=order_free)
        functions = functions if order_free else own.callbacks()
        return self._program(prepared, generation, after, identity.inputs, own.unflatten(), functions)

    def _refused(self, identity: Identity, why: str) -> CaptureError:
        """Return the reason to raise, after telling the daemon to let each process trace the function from now on."""
        with contextlib.suppress(Exception):
            if not self._own.reads.unobserved_reason:
                self._settle(identity, why)
        if not why.startswith(_CHANGES):
            self._note = f"{self._wanted.name} is traced in each process: {why}"
        return CaptureError(why)

    def _settle(self, identity: Identity, why: str = "", order_free: bytes = b"") -> None:
        reads, manifest = self._own.reads, self._manifest()
        settled = Settle(identity.lookup, self._wanted.name, manifest, why, reads.state, order_free)
        self._session.ask(Verb.SETTLE, settled, None)

    def _manifest(self) -> Manifest:
        reads = self._own.reads
        # A random state, so that no process finds the program, except a daemon that restarts.
        if reads.unobserved_reason:
            return Manifest((reads.unobserved_reason,), os.urandom(16))
        return Manifest(reads.names, state_digest(reads.names, reads.state)) if reads.names else Manifest()

    def _unchanged(self, identity: Identity) -> Capture:
        """Return the capture of the function after its trace.

        Raises:
            _DiffersError: the trace changed something, a side effect that must happen in each process.
        """
        if self._own.reads.nonrepeatable:
            raise _DiffersError(f"{_CHANGES} {self._own.reads.nonrepeatable}")
        try:
            after = identify(self._wanted, self._capture).captured
        except CaptureError as error:
            raise _DiffersError(f"{_CHANGES} the captured values: {error}") from error
        if after.key != identity.captured.key:
            self._own.record_change((after.function_key, stamp_of(identity.inputs)))
            raise _DiffersError(f"{_CHANGES} the captured values")
        return after

    def _is_explained(self, identity: Identity) -> bool:
        """Return whether the difference comes from data in installed packages that the own trace read.

        The answer is False if user code that was put on a package, outside the names of the manifest, may be the cause
        as well.
        """
        reads = self._own.reads
        if reads.unobserved_reason or reads.nonrepeatable or reads.ambient or not reads.names:
            return False
        packages = packages_of(reads.names).union(identity.captured.packages)
        if not all(covers(reads.names, *place) for package in packages for place in find_patches(package)):
            return False
        return bool(self._session.ask(Verb.STATE, State(reads.names, reads.state), list[str]))

    # ---- made from the own trace

    def _made_here(self, identity: Identity) -> Program:
        """Make the daemon compile the own trace, because the daemon cannot trace this function itself."""
        why = identity.own_trace_reason()
        assert why is not None
        self._trace(identity.inputs)
        with _failures_to_capture_error():
            return self._shared(identity, why if identity.order else None)

    def _explained(self, identity: Identity, difference: str) -> Program:
        """Return the program of the own trace, for other processes as well if the state of packages explains it.

        Raises:
            CaptureError: the difference has no such explanation, so each process must trace the function.
        """
        try:
            with _failures_to_capture_error():
                if stays := self._own.local_only_reason():
                    raise _DiffersError(stays)
                if self._is_explained(identity):
                    return self._shared(identity, CaptureError("the program changed data in installed packages"))
        except CaptureError as error:
            difference = f"{difference}; {error}"
        except _DiffersError as error:
            difference = str(error)
        raise self._refused(identity, difference)

    def _shared(self, identity: Identity, why: CaptureError | None) -> Program:
        """Make the daemon compile the own trace, so that other processes find the program by the function's own key.

        `why` is the cause to log; if None, the log has the differences from the nearest program.

        Raises:
            CaptureError: the program or its trace cannot be shared.
        """
        self._own.check_arguments()
        exported, reads = self._exported(), self._own.reads
        if reads.unobserved_reason:
            raise CaptureError(reads.unobserved_reason)
        try:
            after = self._unchanged(identity)
        except _DiffersError as error:
            raise CaptureError(str(error)) from None
        ref = identity.captured.index_of
        traced = Traced(
            exported.key, exported.results, tree.encode(self._own.structure(), ref), self._own.comparable_evidence(ref)
        )
        log = CompileLog(self._wanted, identity.parts, why)
        return self._sent(identity.lookup, exported, traced, log, after, identity.inputs, self._manifest())

    def _without_capture(self, why: CaptureError) -> Program:
        """Return the program of the own trace, and record whether the capture cost more than that trace."""
        if self._budget is None:
            return self._of_own_trace(why)
        spent, is_slow = self._budget.spent(), isinstance(why, CaptureTooSlow)
        if is_slow and not self._costs.is_known():
            self._note = f"{self._wanted.name} is traced in each process: {why}"
        start = self._costs.clock()
        try:
            made = self._of_own_trace(why)
        except CaptureError:
            if is_slow:
                self._costs.require()
            raise
        self._costs.weigh(spent, why, self._costs.clock() - start)
        return made

    def _of_own_trace(self, why: CaptureError) -> Program:
        """Make the daemon compile the own trace, which other processes must make, too."""
        wanted = self._wanted
        # After a crash, the same program in another form would crash the next daemon.
        if not _has_jax() or isinstance(why.__cause__, CrashesDaemon):
            raise why
        inputs = wanted.deps.now() if wanted.deps else ()
        self._trace(inputs)
        try:
            with _failures_to_capture_error():
                self._own.check_arguments()
                exported = self._exported()
                signature = signature_of(wanted, None)
                log = CompileLog(wanted, functools.partial(parts_of_traced, wanted, exported.key, signature), why)
                lookup = Lookup(exported.key, "", (), signature)
                traced = Traced(exported.key, exported.results, tree.UNKNOWN)
                made = self._sent(lookup, exported, traced, log, self._current(inputs), inputs)
        except CaptureError as error:
            raise error if str(error) == str(why) else CaptureError(f"{why}; {error}") from error
        if self._note:
            warn(self._note)
        return made

    def _current(self, inputs: tuple[Input, ...]) -> Capture | None:
        """Return a capture that notices later changes.

        The result is None if the function cannot be captured, or the trace itself changed the captured state.
        """
        if self._captured is None:
            return None
        try:
            now = self._capture(self._extras)
        except CaptureError:
            return None
        if now.function_key == self._captured.function_key:
            return now
        self._own.record_change((now.function_key, stamp_of(inputs)))
        return None

    def _exported(self) -> Exported:
        check_carried(self._wanted.context)
        if not _can_leave(self._wanted):
            raise CaptureError(
                "the program refers to shardings or devices of this process, so it cannot be sent to the daemon"
            )
        return self._own.exported(self._wanted.name)

    def _sent(
        self,
        lookup: Lookup,
        exported: Exported,
        traced: Traced,
        log: CompileLog,
        watched: Capture | None,
        inputs: tuple[Input, ...],
        manifest: Manifest = _EMPTY,
    ) -> Program:
        session, wanted = self._session, self._wanted
        log.traced_seconds = self._own.seconds
        with self._progress() as report_phase:
            found, generation = programs.look_up(session, lookup, manifests_of, values.no_deref, report_phase)
            prepared = found.prepared
            if prepared is None:
                request = Prepare(lookup, wanted.name, _where(wanted.fun), traced, log.parts(), manifest)
                prepared, generation = programs.make(session, request, exported.program, values.no_deref, report_phase)
        session.count_client_trace()
        log.report(session, lookup, prepared)
        return self._program(prepared, generation, watched, inputs, self._own.unflatten())

    # ---- details

    def _trace(self, inputs: tuple[Input, ...]) -> None:
        """Run the own trace.

        Raises:
            Raised: the user's function raised an exception.
            _InputsChangedError: a declared input changed during the trace.
        """
        wanted = self._wanted
        platform, devices = self._backend()
        start = time.perf_counter()
        key = "" if self._captured is None else self._captured.function_key
        self._own.run(platform, devices, wanted.order, (key, stamp_of(inputs)))
        self._own.seconds = time.perf_counter() - start
        if wanted.deps is not None and not wanted.deps.still(inputs):
            raise _InputsChangedError

    def _trace_meanwhile(self, identity: Identity) -> None:
        """Run the own trace and lower it, while the daemon works."""
        self._trace(identity.inputs)
        with contextlib.suppress(Exception):  # the comparison raises it again
            self._own.evidence(identity.captured.index_of)

    def _backend(self) -> tuple[str, Sequence[DeviceInfo]]:
        """Return the platform and the devices that the own trace sees. Asks the daemon only once."""
        if self._seen is None:
            with self._session as session:
                self._seen = session.platform, _devices_of(session)
        return self._seen

    def _must_agree(self) -> bool:
        """Return whether the program must agree with the own trace of a client."""
        verify = self._session.settings.verify
        return verify == "always" or (verify == "new" and not _is_operation(self._wanted)) if _has_jax() else False

    def _progress(self) -> contextlib.AbstractContextManager[Callable[[str], None]]:
        wanted = self._wanted
        return progress.shown(labels.of_call(wanted.name, wanted.specs), self._session.settings.progress)

    def _remade(
        self, identity: Identity, prepared: Prepared
    ) -> tuple[tree.Structure, Sequence[Callable[..., tuple[Any, ...]]]]:
        """Return the tree of a program's results and its callbacks, rebuilt as in a process that finds the program."""
        captured = identity.captured
        structure = tree.decode(prepared.tree, RebuiltObjects(captured, prepared.made).object_at)
        called = CallbackFunctions(captured, prepared.callbacks)
        return structure, [called.object_at(-1 - number) for number in range(len(prepared.slots))]

    def _of_daemon(self, identity: Identity, prepared: Prepared, generation: int) -> Program:
        structure, functions = self._remade(identity, prepared)
        unflatten = tree.unflattener_of_sent(structure)
        return self._program(prepared, generation, identity.captured, identity.inputs, unflatten, functions)

    def _program(
        self,
        prepared: Prepared,
        generation: int,
        watched: Capture | None,
        inputs: tuple[Input, ...],
        unflatten: Callable[[Sequence[Any]], Any],
        functions: Sequence[Callable[..., tuple[Any, ...]]] = (),
    ) -> Program:
        prepared = msgspec.structs.replace(prepared, evidence=Evidence())
        stamp = stamp_of(inputs)
        return Program(self._session, generation, watched, prepared, self._wanted, unflatten, stamp, functions)


@contextlib.contextmanager
def _failures_to_capture_error() -> Iterator[None]:
    """Turn every failure of jitserver into a CaptureError, which leads to the own trace or to a run in this process.

    All code except the trace of the user's function runs inside. Refusals and the loss of the daemon pass through.
    """
    try:
        yield
    except (CaptureError, DaemonError, SessionBusy, ArrayLost, ProgramsDiffer, TraceFailed, _DiffersError):
        raise
    except _InputsChangedError:
        raise
    except CrashesDaemon as error:
        if settings().fallback == "error":
            raise
        raise CaptureError(str(error)) from error
    except Exception as error:
        if settings().fallback == "error" and type(error).__name__ == "JaxRuntimeError":
            raise
        what = f"{type(error).__name__}: {error}"
        raise CaptureError(f"jitserver failed ({what:.300}). Please report this") from error


def _is_operation(wanted: Specialisation) -> bool:
    """Return whether the program is an array operation of jitclient.

    Its code is then jitclient's own on both sides, and none of its arguments contains an object of the user's.
    """
    is_ours = (wanted.fun.__module__ or "").startswith("jitclient.arrays.")
    return is_ours and all(given is StaticLeaf for given in tree.objects_in(wanted.structure))


def _has_jax() -> bool:
    """Return whether this process can trace functions itself."""
    if after_fork.has_no_threads():
        return False
    try:
        return importlib.util.find_spec("jax") is not None
    except (ImportError, ValueError):
        return False


def _devices_of(session: Session) -> list[DeviceInfo]:
    """Return the daemon's devices if a trace in this process would see other devices, else an empty list."""
    import jax

    with contextlib.suppress(RuntimeError):  # jax finds no device here
        if session.platform == jax.default_backend():
            return []
    found: list[DeviceInfo] = session.ask(Verb.DEVICES, None, list[DeviceInfo])
    return found


def _can_leave(wanted: Specialisation) -> bool:
    """Return whether a program traced here can run on the daemon: it must not depend on where its arrays are."""
    placed = any(spec.sharding is not None for spec in wanted.specs)
    return not (placed or wanted.options.about_devices() or on_mesh(wanted.context))


def _where(fun: Callable[..., Any]) -> str:
    code = getattr(fun, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""
