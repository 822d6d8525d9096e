"""Own trace of a function, which `jax.jit` makes in the caller's process and which decides which program a call runs.

JAX, not jitserver's trees, flattens the arguments and the results here, so that a mistake in these trees shows as a
difference. The user's code runs once for each trace: JAX keeps the trace for a later run in this process.
"""

import contextlib
import dataclasses
import operator
import threading
import weakref
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from jitclient.arrays.array import Array
from jitclient.calls import in_process
from jitclient.calls.callback_equality import difference_of_functions, is_same_capture
from jitclient.calls.raised import Raised
from jitclient.capture import manifest
from jitclient.capture.codec import values
from jitclient.core.digests import digest
from jitclient.errors import CaptureError
from jitclient.jaxside import backend_view, ffi, internals, interop, trace_events, trace_imports, tree
from jitclient.jaxside.avals import abstract, spec_of_aval
from jitclient.jaxside.callbacks import callbacks_for_people, functions_of
from jitclient.jaxside.evidence import evidence_of, order_free
from jitclient.jaxside.original_jit import original_jit
from jitclient.wire.messages import DeviceInfo, Evidence, ForeignFunction, Spec

_one_at_a_time = threading.Lock()
_reads: weakref.WeakKeyDictionary[Any, tuple[manifest.Reads, Hashable]] = weakref.WeakKeyDictionary()
"""Reads of each trace, and the state that the function depended on, by jaxpr. JAX keeps jaxprs as long as traces."""

_NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


@dataclasses.dataclass(frozen=True)
class Exported:
    """Program without effects, serialized by `jax.export`, and its results, all in wire order."""

    program: bytes
    key: str  # digest of the program
    results: tuple[Spec, ...]
    foreign: tuple[ForeignFunction, ...]

    def lookup_key(self) -> str:
        """Return the key under which processes with the same trace find the program."""
        return digest(self.key.encode() + repr(self.foreign).encode()).hex() if self.foreign else self.key


class OwnTrace:
    """Trace of a function in this process for one call.

    Args:
        jitted: returns the function under JAX's own `jit`.
        args: positional arguments of the call.
        kwargs: keyword arguments of the call.
        leaves: leaves of the arguments that are not static, as they were flattened for the call.
        dynamic: these arguments, if jax was not imported then, so that jitserver's trees flattened them.
        specs: specs of the leaves.
        options: keywords of `jit` for the program, without those about arguments and devices.
    """

    def __init__(
        self,
        jitted: Callable[[], Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        leaves: Sequence[Any],
        specs: Sequence[Spec],
        options: Mapping[str, Any] = _NO_OPTIONS,
        dynamic: Any = None,
    ) -> None:
        self._jitted = jitted
        self._args = args
        self._kwargs = kwargs
        self._dynamic = dynamic
        self._leaves = leaves
        self._specs = specs
        self._options = options
        self._order: tuple[int, ...] | None = None
        self._platform = ""
        self._sees_own_devices = True
        self._traced: Any = None
        self._lowered: Any = None
        self._evidence: Evidence | None = None
        self._depends: Hashable = None
        self.seconds = 0.0
        self.reads = manifest.Reads(unobserved_reason="the trace has not run")

    def run(
        self,
        platform: str,
        devices: Sequence[DeviceInfo],
        order: tuple[int, ...] | None,
        depends: Hashable,
        expected: Collection[str] = (),
        held: Collection[str] = (),
    ) -> None:
        """Trace the function, unless it has been traced, for a platform whose devices the trace sees.

        Args:
            platform: platform for which the function is lowered.
            devices: devices that the trace sees, if they are not this process's own.
            order: wire order of the arguments' leaves; see `tree.leaf_order`.
            depends: state that the function depends on now. An earlier trace of JAX is used if its state is equal.
            expected: names of data that other processes' traces of the function read.
            held: names of objects that the function has, whose attributes it may read.

        Raises:
            Raised: the function raised an exception.
        """
        self._platform, self._order, self._sees_own_devices = platform, order, not devices
        if self._traced is not None and depends != self._depends:
            self.reads = manifest.Reads(unobserved_reason="the function has changed since it was traced")
        if self._traced is None:
            self._depends = depends
            jitted = self._jitted()
            if not self._is_traced(jitted, devices, depends, expected, held):
                earlier = self._traced
                jitted.clear_cache()
                try:
                    self._is_traced(jitted, devices, depends, expected, held)
                except Raised as raised:
                    import jax

                    if not isinstance(raised.error, jax.errors.UnexpectedTracerError):
                        raise
                    # The earlier trace has left a value in what the function reads. JAX would use that trace again.
                    self._traced = earlier
                    self.reads = manifest.Reads(unobserved_reason="its trace leaves values in what it reads")

    def _is_traced(
        self,
        jitted: Any,
        devices: Sequence[DeviceInfo],
        depends: Hashable,
        expected: Collection[str],
        held: Collection[str],
    ) -> bool:
        """Trace the function; return False if JAX returned an earlier trace that does not apply any more."""
        args, kwargs = in_process.for_trace((self._args, self._kwargs))
        for leaf in self._leaves:
            if type(leaf) is Array and interop.Array is not None:
                with contextlib.suppress(AttributeError):
                    _ = leaf.format  # now, because JAX asks for it in the trace, which should not see what that imports
        with (
            backend_view.of(devices),
            trace_events.counted() as traces,
            manifest.observed(expected, held) as observation,
        ):
            try:
                # Not `jitted.trace`, because a jitted object may have a field `trace`.
                with trace_imports.evaluated():
                    self._traced = internals.with_flat_arguments(type(jitted).trace(jitted, *args, **kwargs))
                if len(self._traced.jaxpr.in_avals) > len(self._specs):
                    # The call raises JAX's error for a leaked tracer.
                    jitted(*_filled(args), **_filled(kwargs))
            except BaseException as error:
                raise Raised(error) from None
        # JAX also reports a trace if only the wrapper is new to it.
        code = trace_events.code_of(jitted)
        is_new = bool(traces) and self._jaxpr() not in _reads and (code is None or observation.has_run(code))
        if is_new:
            _reads[self._jaxpr()] = self._reads_of(observation), depends
        self.reads, then = _reads.get(
            self._jaxpr(), (manifest.Reads(unobserved_reason="JAX traced the function before"), None)
        )
        return is_new or (then == depends and self._reads_the_same())

    def _reads_of(self, observation: manifest.Observation) -> manifest.Reads:
        try:
            return ffi.with_foreign_functions(observation.reads(), self._jaxpr(), self._platform)
        except Exception as error:
            return manifest.Reads(unobserved_reason=f"its foreign functions (jax.ffi) could not be described: {error}")

    def _reads_the_same(self) -> bool:
        """Return whether packages hold the same data as when JAX traced the function.

        If the trace changes data that later traces depend on, such as a random generator, the answer is True.
        """
        return bool(self.reads.nonrepeatable) or manifest.state_of(self.reads.names) == self.reads.state

    def has_run(self) -> bool:
        """Return whether the function has been traced."""
        return self._traced is not None

    def forget(self) -> None:
        """Forget the trace, which must not be used."""
        self._traced = self._lowered = self._evidence = None

    def record_change(self, depends: Hashable) -> None:
        """Note the state after the trace, which changed it. As in JAX, that change causes no further trace."""
        _reads[self._jaxpr()] = self.reads, depends

    def _jaxpr(self) -> Any:
        return getattr(self._traced.jaxpr, "jaxpr", self._traced.jaxpr)

    # ---- jitserver's own code: a failure below this line does no harm

    def uses_outer_trace(self) -> bool:
        """Return whether the function uses a value of another trace, which JAX then adds to its arguments."""
        return len(self._traced.jaxpr.in_avals) > len(self._specs)

    def flattens_differently(self) -> bool:
        """Return whether JAX sees other leaves in the arguments than jitserver's trees."""
        import jax

        leaves = self._leaves if self._dynamic is None else jax.tree.leaves(self._dynamic)
        avals = self._traced.jaxpr.in_avals
        same = len(leaves) == len(self._leaves) == len(avals) and all(map(operator.is_, leaves, self._leaves))
        return not same or not all(map(_is_of, avals, self._specs))

    def evidence(self, ref: values.Ref) -> Evidence:
        """Return the evidence by which the trace is compared with another."""
        if self._evidence is None:
            traced, lowered = self._in_wire_order()
            self._evidence = evidence_of(traced, lowered, ref)
        return self._evidence

    def order_free(self, ref: values.Ref) -> bytes:
        """Return the digest of the trace without its order; empty if the trace cannot be compared in that way."""
        return order_free(*self._in_wire_order(), ref)

    def comparable_evidence(self, ref: values.Ref) -> Evidence:
        """Return the digests by which a process that finds this trace's program compares it with its own trace."""
        return Evidence(self.evidence(ref).digest, order_free=self.order_free(ref))

    def difference_of_results(self, results: Sequence[Spec], structure: tree.Structure) -> str:
        """Return how the results of a program differ from those of the own trace; empty if they are equal.

        `structure` is the tree of the results as another process rebuilds it that finds the program.
        """
        if list(map(_weak, results)) != list(map(_weak, self.results())):
            return "the types of the results differ"
        if tree.leaf_order(structure) != self._order_of_results():
            return "the order of the results differs"
        # Static data may have any `__eq__`.
        with contextlib.suppress(Exception):
            if tree.treedef_of(structure) == self._traced.out_tree:
                return ""
        return "" if is_same_capture(structure, self.structure()) else "the static data in the results differs"

    def difference_of_callbacks(
        self, functions: Sequence[Callable[..., Any]], ref: values.Ref, *, in_order: bool
    ) -> str:
        """Return how the functions that a program calls back differ from the own trace's; empty if they are equal."""
        names = self.evidence(ref).callbacks
        if not in_order and len(set(names)) < len(names):
            return "the callbacks cannot be matched, because their order may differ"
        return difference_of_functions(self.callbacks(), functions, in_order=in_order)

    def results(self) -> tuple[Spec, ...]:
        """Return the specs of the results, in wire order."""
        return tuple(tree.as_sent(list(map(spec_of_aval, self._traced.jaxpr.out_avals)), self._order_of_results()))

    def unflatten(self) -> Callable[[Sequence[Any]], Any]:
        """Return a function that builds the tree from results in wire order."""
        treedef, order = self._traced.out_tree, self._order_of_results()
        return treedef.unflatten if order is None else lambda leaves: treedef.unflatten(tree.as_here(leaves, order))

    def structure(self) -> tree.Structure:
        """Return the tree of the results, in the form that is sent."""
        return tree.structure_of(self._traced.out_tree)

    def callbacks(self) -> tuple[Callable[..., tuple[Any, ...]], ...]:
        """Return the functions that the program calls back, in the order of their slots."""
        traced, lowered = self._in_wire_order()
        if lowered is None and self.callbacks_for_people():
            lowered = traced.lower()  # for this process's own platform, with the same functions
        return functions_of(traced, lowered)

    def exported(self, name: str) -> Exported:
        """Return the program in a form for the daemon.

        Raises:
            CaptureError: the program can run in this process only.
            Incompatible: the program needs more devices than the daemon has.
        """
        from jax import export

        results = self.results()
        with _without_locations():
            try:
                function = original_jit(self._over_leaves(name))
                # The daemon registers the same foreign functions, of packages that must be the same there.
                reachable = filter(ffi.can_register, self.foreign_functions())
                allowed = [export.DisabledSafetyCheck.custom_call(each.name) for each in reachable]
                exported = export.export(function, platforms=[self._platform], disabled_checks=allowed)(*self._avals())
                program = bytes(exported.serialize())
            except Exception as error:
                # Effects, callbacks and custom calls without a compatibility guarantee each raise another type.
                raise CaptureError(f"the program cannot be sent to the daemon: {_first_sentence(error)}") from error
        if exported.nr_devices > 1:
            raise CaptureError(f"the program uses {exported.nr_devices} devices of this process")
        return Exported(program, digest(program).hex(), results, self.foreign_functions())

    def callbacks_for_people(self) -> str:
        """Return the callbacks of the program in words, or ""."""
        return callbacks_for_people(self._traced.jaxpr)

    def foreign_functions(self) -> tuple[ForeignFunction, ...]:
        """Return the foreign functions that the program calls."""
        return ffi.foreign_functions(self._traced.jaxpr, self._platform)

    def unreachable_functions(self) -> str:
        """Return the foreign functions of the program that only this process can register in words, or ""."""
        names = [function.name for function in self.foreign_functions() if not ffi.can_register(function)]
        return ffi.described(names) if names else ""

    def _over_leaves(self, name: str) -> Callable[..., list[Any]]:
        """Return the traced program as a function of leaves in wire order. The user's code does not run again."""
        from jax.extend import core

        traced, order, order_of_results = core.jaxpr_as_fun(self._traced.jaxpr), self._order, self._order_of_results()

        def function(*leaves: Any) -> list[Any]:
            return list(tree.as_sent(traced(*tree.as_here(leaves, order)), order_of_results))

        function.__name__ = name
        return function

    def _donated(self) -> tuple[int, ...]:
        """Return the positions of donated leaves in wire order."""
        import jax

        # The tree has no nodes of the user's; see `internals.with_flat_arguments`.
        donated = [info.donated for info in jax.tree.leaves(self._traced.args_info)]
        return tuple([number for number, is_donated in enumerate(tree.as_sent(donated, self._order)) if is_donated])

    def _avals(self) -> list[Any]:
        return list(map(abstract, tree.as_sent(self._specs, self._order)))

    def _in_wire_order(self) -> tuple[Any, Any]:
        """Return JAX's traced and lowered stages, with arguments and results in wire order.

        The lowered stage is None if only a process that has the platform's devices can lower the function. JAX lowers
        callbacks and kernels only there.

        Raises:
            Raised: JAX refuses to lower the function.
        """
        if self._lowered is None:
            traced = self._traced
            if (self._order, self._order_of_results()) != (None, None) or self._is_committed():
                function = original_jit(self._over_leaves("function"), donate_argnums=self._donated(), **self._options)
                with trace_imports.evaluated():
                    traced = function.trace(*self._avals())
            lowered = None
            try:
                lowered = traced.lower(lowering_platforms=(self._platform,))
            except Exception as error:
                if isinstance(error, Warning) or (traced is self._traced and self._sees_own_devices):
                    # JAX refuses the program, or warns where warnings are errors.
                    raise Raised(error) from None
                if self._sees_own_devices:
                    raise
            self._lowered = traced, lowered
        traced, lowered = self._lowered
        return traced, lowered

    def _is_committed(self) -> bool:
        """Return whether an argument is committed to one of this process's devices, as the lowered text would say."""
        pairs = zip(self._leaves, self._specs, strict=True)
        return any(spec.sharding is None and getattr(leaf, "committed", False) for leaf, spec in pairs)

    def _order_of_results(self) -> tuple[int, ...] | None:
        return tree.leaf_order(self.structure())


def _first_sentence(error: Exception) -> str:
    """Return the first sentence of an error whose text continues with advice and examples."""
    return str(error).partition("\n")[0].partition(". ")[0]


def _filled(arguments: Any) -> Any:
    """Return arguments with zeros in place of arrays of which only shape and dtype are known."""
    import jax

    def filled(leaf: Any) -> Any:
        return jax.numpy.zeros(leaf.shape, leaf.dtype) if isinstance(leaf, jax.ShapeDtypeStruct) else leaf

    return jax.tree.map(filled, arguments)


def _is_of(aval: Any, spec: Spec) -> bool:
    found = spec_of_aval(aval)
    return (found.shape, found.dtype, found.weak_type) == (spec.shape, spec.dtype, spec.weak_type)


def _weak(spec: Spec) -> tuple[Any, ...]:
    return spec.shape, spec.dtype, spec.weak_type


@contextlib.contextmanager
def _without_locations() -> Iterator[None]:
    """Keep file names and lines out of the exported program, so that moving code does not change it."""
    import jax

    # The setting applies to the whole process, hence the lock.
    name = "jax_traceback_in_locations_limit"
    with _one_at_a_time:
        before = getattr(jax.config, name)
        jax.config.update(name, 0)
        try:
            yield
        finally:
            jax.config.update(name, before)
