"""Agreement of the own trace with the daemon's trace, or with that of a program that was found."""

import os
from typing import NamedTuple

from jitclient.calls.failures import TracesDifferError
from jitclient.calls.miss import Functions, Miss
from jitclient.capture.ambient.patches import find_patches
from jitclient.capture.dump import Capture
from jitclient.capture.manifest import covers, packages_of
from jitclient.errors import CaptureError, ProgramsDiffer
from jitclient.jaxside.evidence import difference_of_evidence, has_same_order, is_same_without_order
from jitclient.jaxside.ffi import is_of_program
from jitclient.session.exceptions import TraceFailed
from jitclient.wire.messages import UNOBSERVED, Evidence, Manifest, Prepared, Settle, Settled, Verb


class Agreement(NamedTuple):
    """Agreement of the own trace with the daemon's."""

    capture: Capture  # after the trace
    functions: Functions  # the functions that the program calls back


def agreed(miss: Miss, prepared: Prepared) -> Agreement:
    """Compare the own trace with the daemon's; if they agree, the daemon offers the program to other processes.

    Raises:
        TracesDifferError: the traces differ, or the trace changed something.
        CaptureError: JAX and jitserver's trees see different arguments.
    """
    own = miss.own
    miss.check_arguments()
    foreign = own.foreign_functions()
    if any(map(is_of_program, foreign)) or foreign != prepared.foreign:
        raise TracesDifferError("the daemon has other foreign functions (jax.ffi)")
    after = unchanged(miss)
    structure, functions = miss.rebuilt(prepared)
    there = prepared.evidence
    difference = difference_of_evidence(own.evidence(miss.ref), there)
    order_free = own.order_free(miss.ref) if difference else b""
    differs_otherwise = own.difference_of_results(prepared.results, structure) or own.difference_of_callbacks(
        functions, miss.ref, in_order=not order_free
    )
    if not differs_otherwise and (order_free or not difference):
        agrees = not difference or is_same_without_order(order_free, there.order_free)
        settled = settle(miss, agrees=agrees, order_free=order_free)
        if settled.agrees:
            return Agreement(after, functions if order_free else own.callbacks())
        if settled.agrees is None:
            raise CaptureError("the daemon no longer has the trace to compare with")
    raise TracesDifferError(f"the daemon's trace differs: {difference or differs_otherwise}")


def check_hit(miss: Miss, prepared: Prepared) -> None:
    """Trace the function in this process as well, and compare the trace with the program that was found.

    Raises:
        ProgramsDiffer: the program that was found is stale.
    """
    miss.trace()
    own, there = miss.own, prepared.evidence
    in_order = has_same_order(own.evidence(miss.ref), there)
    is_same = (in_order or _is_reordered(miss, there)) and own.foreign_functions() == prepared.foreign
    structure, functions = miss.rebuilt(prepared)
    differs_otherwise = own.difference_of_results(prepared.results, structure) or own.difference_of_callbacks(
        functions, miss.ref, in_order=in_order
    )
    if differs_otherwise or not is_same:
        name = miss.wanted.name
        raise ProgramsDiffer(
            f"{name}: the cached program differs from the trace in this process. Please report this, with the "
            f"function. Run `jitserver cache rm {name}` to remove the program."
        )


def unchanged(miss: Miss) -> Capture:
    """Return the capture of the function after its trace.

    Raises:
        TracesDifferError: the trace changed something, a side effect that must happen in each process.
    """
    if changed := miss.own.reads.nonrepeatable:
        raise _trace_changes(miss, changed)
    try:
        after = miss.identify_again().captured
    except CaptureError as error:
        raise _trace_changes(miss, f"the captured values: {error}") from error
    if after.key != miss.identity.captured.key:
        miss.record_change(after)
        raise _trace_changes(miss, "the captured values")
    return after


def _trace_changes(miss: Miss, changed: str) -> TracesDifferError:
    return TracesDifferError(miss.decide(trace_changes=changed).reason)


def changed_data(miss: Miss) -> tuple[str, ...]:
    """Return the names of data in installed packages that the own trace read, and that explain the difference.

    There are none if user code that was put on a package, outside the names of the manifest, may be the cause
    as well.
    """
    reads = miss.own.reads
    if reads.unobserved_reason or reads.nonrepeatable or reads.ambient or not reads.names:
        return ()
    packages = packages_of(reads.names).union(miss.identity.captured.packages)
    if not all(covers(reads.names, *place) for package in packages for place in find_patches(package)):
        return ()
    return settle(miss).differing


def settle(miss: Miss, agrees: bool = False, refusal: str = "", order_free: bytes = b"") -> Settled:
    """Report the outcome to the daemon, which then offers the program to other processes, or refuses the function."""
    report = Settle(miss.identity.lookup, miss.wanted.name, manifest_of(miss), agrees, refusal, order_free)
    settled: Settled = miss.session.ask(Verb.SETTLE, report, Settled)
    return settled


def manifest_of(miss: Miss) -> Manifest:
    """Return the manifest of the own trace: the state of installed packages that it read."""
    reads = miss.own.reads
    # A random state, so that no process finds the program, except a daemon that restarts.
    if reads.unobserved_reason:
        return Manifest((f"{UNOBSERVED}{reads.unobserved_reason}",), (os.urandom(16),))
    return Manifest(reads.names, reads.state)


def _is_reordered(miss: Miss, there: Evidence) -> bool:
    """Return whether the trace of a program that was found equals the own trace except for its order.

    The daemon has kept only a digest of the trace, so it traces the function again.
    """
    mine = miss.own.order_free(miss.ref)
    if not mine or there.order_free:
        return is_same_without_order(mine, there.order_free)
    try:
        again, _ = miss.make_from_capture(miss.identity.lookup, None)
    except TraceFailed:
        return False
    return again.evidence.digest == there.digest and bool(settle(miss, order_free=mine).agrees)
