"""Miss: a call whose program this process does not have, on its way to that program.

The steps are functions of other modules, each of which takes the miss: `calls/compilation.py` has their order.
"""

import contextlib
import dataclasses
import importlib.util
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import msgspec

from jitclient.calls import compile_log
from jitclient.calls.capture_costs import CaptureCosts
from jitclient.calls.deps import Input, stamp_of
from jitclient.calls.failures import CaptureNeededError, InputsChangedError
from jitclient.calls.identity import Identity, identify, manifests_of
from jitclient.calls.own_trace import OwnTrace
from jitclient.calls.program import Program
from jitclient.calls.specialisation import Specialisation
from jitclient.calls.where_to_trace import Decision, Facts, where_to_trace
from jitclient.capture.budget import Budget
from jitclient.capture.codec import values
from jitclient.capture.describe import namespaces
from jitclient.capture.dump import Capture
from jitclient.capture.results.reader import CallbackFunctions, RebuiltObjects
from jitclient.core import events, progress
from jitclient.core.clock import perf_counter
from jitclient.core.settings import report, settings
from jitclient.errors import CaptureError, CaptureTooSlow
from jitclient.jaxside import after_fork, context, tree
from jitclient.jaxside.context import on_mesh
from jitclient.jaxside.static_leaves import StaticLeaf
from jitclient.session import programs
from jitclient.session.session import Session
from jitclient.wire.messages import DeviceInfo, Evidence, Found, Lookup, Manifest, Prepare, Prepared, Verb

Functions = Sequence[Callable[..., tuple[Any, ...]]]
"""Functions that a program calls back, in the order of their slots."""


class Miss:
    """State of one miss.

    Attributes:
        session: the session with the daemon.
        wanted: the function, options and signature to compile for.
        own: the trace of this process, with its evidence.
        captured: the capture from before the trace; None if the function cannot be captured.
        identity: the identity of the program, set by `identify`.
        inputs: the declared inputs, set before the trace.
        facts: the facts, so far as they are known, which decide where to trace the function.
        note: a note for the user, shown once the own trace is on the daemon.
    """

    identity: Identity

    def __init__(
        self,
        session: Session,
        wanted: Specialisation,
        capture: Callable[..., Capture],
        own: OwnTrace,
        costs: CaptureCosts,
    ) -> None:
        self.session = session
        self.wanted = wanted
        self.own = own
        self.captured: Capture | None = None
        self.inputs: tuple[Input, ...] = ()
        self.note = ""
        self.facts = Facts()
        self._capture = capture
        self._costs = costs
        self._budget: Budget | None = None  # of the first capture; later ones are compared with it
        self._extras: tuple[Any, ...] = ()  # of `captured`
        self._expected: frozenset[str] = frozenset()  # names of data that other processes' traces read
        self._loaded: Collection[str] = ()  # modules that the trace has loaded
        self._seen: tuple[str, Sequence[DeviceInfo]] | None = None

    def decide(self, **facts: Any) -> Decision:
        """Add facts to those known so far, and decide where to trace the function."""
        self.facts = dataclasses.replace(self.facts, **facts)
        return where_to_trace(self.facts)

    # ---- the function

    def identify(self) -> Decision:
        """Capture the function, identify its program, and decide where to trace it.

        Raises:
            CaptureError: the program has no key that other processes can compute.
        """
        wanted = self.wanted
        self.decide(
            is_one_of_several=context.is_one_of_several(),
            verify=self.session.settings.verify,
            can_trace=_can_trace(),
            is_operation=_is_operation(wanted),
            has_deps=wanted.deps is not None,
        ).raise_if_here()
        self.identity = identify(wanted, self._capture_before)
        self.inputs = self.identity.inputs
        return self.decide(set_order=self.identity.order)

    def _capture_before(self, extras: tuple[Any, ...]) -> Capture:
        """Capture the function with extras; if they cannot be captured, keep a capture of the function alone."""
        self.captured, self._extras = None, extras
        self._budget = capture_budget(self.wanted, self._costs)
        try:
            self.captured = self._capture(extras, self._budget)
        except CaptureTooSlow:
            raise
        except CaptureError:
            if extras:
                with contextlib.suppress(CaptureTooSlow):
                    self._capture_before(())
            raise
        return self.captured

    @contextlib.contextmanager
    def weighing_capture(self, why: CaptureError) -> Iterator[None]:
        """Record whether the capture, which failed, cost more than the own trace that the `with` block makes.

        Raises:
            CaptureNeededError: the capture was abandoned, and the program needs it.
        """
        # A capture of the function alone is of use: it shows what is rebound.
        if self._budget is None or self.captured is not None:
            yield
            return
        spent, is_slow = self._budget.spent(), isinstance(why, CaptureTooSlow)
        if is_slow and not self._costs.is_known():
            self.note = f"{self.wanted.name} is traced in each process: {why}"
        start = self._costs.clock()
        try:
            yield
        except CaptureError:
            if not is_slow:
                raise
            self._costs.require()
            raise CaptureNeededError from None
        self._costs.weigh(spent, why, self._costs.clock() - start)

    def capture_again(self) -> Capture:
        """Capture the function with the extras of `captured`, to see changes, but for modules that the trace loaded."""
        with namespaces.without_modules(self._loaded):
            return self._capture(self._extras)

    def identify_again(self) -> Identity:
        """Identify the program of the function in its state after the trace."""
        with namespaces.without_modules(self._loaded):
            return identify(self.wanted, self._capture)

    def ref(self, value: Any) -> int | None:
        """Return the position of an object in the capture, or None."""
        return self.identity.captured.index_of(value)

    # ---- the own trace

    def trace(self) -> None:
        """Run the own trace.

        Raises:
            Raised: the user's function raised an exception.
            InputsChangedError: a declared input changed during the trace.
        """
        wanted = self.wanted
        platform, devices = self.backend()
        start = perf_counter()
        key = "" if self.captured is None else self.captured.function_key
        before = set(sys.modules)
        with events.log.span("trace", wanted.name):
            held = frozenset() if self.captured is None else self.captured.held
            self.own.run(platform, devices, wanted.order, (key, stamp_of(self.inputs)), self._expected, held)
        self._loaded = sys.modules.keys() - before
        self.own.seconds += perf_counter() - start
        if wanted.deps is not None and not wanted.deps.still(self.inputs):
            raise InputsChangedError

    def trace_meanwhile(self) -> None:
        """Run the own trace and lower it, while the daemon works."""
        self.trace()
        # The comparison raises the exception again.
        with contextlib.suppress(Exception), events.log.span("lower", self.wanted.name):
            self.own.evidence(self.ref)

    def record_change(self, now: Capture) -> None:
        """Record that the trace changed the captured state; `now` is the capture after the trace."""
        self.own.record_change((now.function_key, stamp_of(self.inputs)))

    def check_arguments(self) -> None:
        """Check that JAX and jitserver's trees see the same leaves.

        Raises:
            CaptureError: the leaves differ.
        """
        own = self.own
        self.decide(
            uses_outer_trace=own.uses_outer_trace(), flattens_differently=own.flattens_differently()
        ).raise_if_here()

    def backend(self) -> tuple[str, Sequence[DeviceInfo]]:
        """Return the platform and the devices that the own trace sees. Asks the daemon only once."""
        if self._seen is None:
            with self.session as session:
                self._seen = session.platform, _devices_of(session)
        return self._seen

    # ---- the daemon

    def _progress(self) -> contextlib.AbstractContextManager[None]:
        return progress.shown(self.wanted.label, report() != "off")

    def look_up(self, lookup: Lookup, deref: values.Deref) -> tuple[Found, int]:
        """Look up a program on the daemon; the results are those of `programs.look_up`."""
        with self._progress():
            return programs.look_up(self.session, lookup, self._manifests_of, deref)

    def _manifests_of(self, lists: Sequence[tuple[str, ...]]) -> tuple[Manifest, ...]:
        self._expected = frozenset().union(*lists)
        return manifests_of(lists)

    def make_from_capture(
        self,
        lookup: Lookup,
        manifest: Manifest | None,
        meanwhile: Callable[[], None] | None = None,
    ) -> tuple[Prepared, int]:
        """Make the daemon trace and compile the function; the results are those of `programs.make`."""
        captured, request = self.identity.captured, self.identity.request(lookup, manifest=manifest)
        with self._progress():
            return programs.make(self.session, request, captured.payload, captured.object_at, meanwhile)

    def make_from_program(self, request: Prepare, program: bytes) -> tuple[Prepared, int]:
        """Make the daemon compile a program of the own trace; the results are those of `programs.make`."""
        with self._progress():
            return programs.make(self.session, request, program, values.no_deref)

    def report(self, lookup: Lookup, prepared: Prepared) -> None:
        """Log a program that was made from the capture, or found."""
        request = self.identity.request(lookup)
        compile_log.report(self.session, self.wanted, request, prepared, self.identity.captured)

    # ---- the program

    def rebuilt(self, prepared: Prepared) -> tuple[tree.Structure, Functions]:
        """Return the tree of a program's results and its callbacks, rebuilt as in a process that finds the program."""
        captured = self.identity.captured
        if prepared.slots:
            # The functions are wrapped by functions of JAX's.
            import jax  # noqa: F401
        structure = tree.decode(prepared.tree, RebuiltObjects(captured, prepared.made).object_at)
        called = CallbackFunctions(captured, prepared.callbacks)
        return structure, [called.object_at(-1 - number) for number in range(len(prepared.slots))]

    def program_of_daemon(self, prepared: Prepared, generation: int) -> Program:
        """Return a program that the daemon traced, or that was found."""
        structure, functions = self.rebuilt(prepared)
        unflatten = tree.unflattener_of_sent(structure)
        return self.program(prepared, generation, self.identity.captured, unflatten, functions)

    def program(
        self,
        prepared: Prepared,
        generation: int,
        watched: Capture | None,
        unflatten: Callable[[Sequence[Any]], Any],
        functions: Functions = (),
    ) -> Program:
        """Return a program; `watched` shows whether objects that the function refers to were rebound."""
        # The text may be long, and `Program.is_same` needs the digest alone.
        prepared = msgspec.structs.replace(prepared, evidence=Evidence(prepared.evidence.digest))
        stamp = stamp_of(self.inputs)
        return Program(self.session, generation, watched, prepared, self.wanted, unflatten, stamp, functions)


def capture_budget(wanted: Specialisation, costs: CaptureCosts) -> Budget | None:
    """Return the budget of a capture that starts now; None if the call may need its capture to run on the daemon."""
    is_placed = any(spec.sharding is not None for spec in wanted.specs)
    needs_capture = is_placed or wanted.options.about_devices() or on_mesh(wanted.context) or not _can_trace()
    return None if needs_capture or settings().fallback == "error" else costs.budget()


def _is_operation(wanted: Specialisation) -> bool:
    """Return whether the program is an array operation of jitclient.

    Its code is then jitclient's own on both sides, and none of its arguments contains an object of the user's.
    """
    is_ours = (wanted.fun.__module__ or "").startswith("jitclient.arrays.")
    return is_ours and all(given is StaticLeaf for given in tree.objects_in(wanted.structure))


def _can_trace() -> bool:
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
