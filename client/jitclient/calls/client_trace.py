"""Tracing in this process what the daemon cannot trace: functions with ambient inputs, or without a capture. The daemon
compiles the program, and shares it with all clients that send the same text. And with JITSERVER_VERIFY=1, what the
daemon has traced, to compare.
"""

import contextlib
import dataclasses
import io
import itertools
import threading
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from jitclient.calls.specialisation import Specialisation
from jitclient.codec.capture import Capture
from jitclient.digests import digest
from jitclient.errors import CaptureError, Incompatible, ProgramsDiffer
from jitclient.local_jax import backend_view
from jitclient.local_jax.avals import abstract, spec_of_aval
from jitclient.local_jax.leaked import refuse_used
from jitclient.local_jax.own_jit import own_jit
from jitclient.tracing.callbacks import callback_names, callbacks_for_people, calls_back
from jitclient.trees import tree
from jitclient.wire.messages import DeviceInfo, Spec, Verified

_one_at_a_time = threading.Lock()


@dataclasses.dataclass(frozen=True)
class ClientTrace:
    """A program without effects, as serialized by `jax.export`, with its results."""

    program: bytes
    key: str  # digest of the program
    results: tuple[Spec, ...]
    structure: tree.Structure


def trace(wanted: Specialisation, platform: str, devices: Sequence[DeviceInfo] = ()) -> ClientTrace:
    """Trace and lower a function for the daemon's platform, under the JAX settings of this process. Imports jax.

    While it is traced, the function sees `devices` as those of the backend. Raises `CaptureError` for a program that
    can run in this process only.
    """
    from jax import export

    with without_locations(), backend_view.of(devices):
        jitted, traced, structure = _traced(wanted)
        if calls_back(traced.jaxpr):
            raise CaptureError(
                f"it is traced in this process, where its callbacks stay: {callbacks_for_people(traced.jaxpr)}"
            )
        results = tuple(map(spec_of_aval, traced.out_avals))
        try:
            exported = export.export(jitted, platforms=[platform])(*map(abstract, wanted.specs_sent))
            program = bytes(exported.serialize())
        except Exception as error:  # effects, callbacks, custom calls without guarantee: each raises another type
            raise CaptureError(f"its program cannot leave this process: {error}") from error
    if exported.nr_devices > max(len(devices), 1):
        raise Incompatible.with_devices(exported.nr_devices, len(devices))
    if exported.nr_devices > 1:
        raise CaptureError(f"it is traced in this process, for {exported.nr_devices} of its devices")
    return ClientTrace(program, digest(program).hex(), results, structure)


def structure_of_results(wanted: Specialisation, devices: Sequence[DeviceInfo] = ()) -> tree.Structure:
    """The tree of a function's results, from a trace in this process. Imports jax."""
    with backend_view.of(devices):
        return _traced(wanted)[2]


def _traced(wanted: Specialisation) -> tuple[Any, Any, tree.Structure]:
    """The function under jit, its trace, and the structure of its results."""
    over_leaves, specs = wanted.over_leaves(), wanted.specs_sent
    jitted = own_jit(over_leaves.function)
    traced = jitted.trace(*map(abstract, specs))  # what the function raises is its caller's to see
    refuse_used(jitted, len(traced.jaxpr.in_avals), specs)
    return jitted, traced, tree.structure_of(over_leaves.out_tree)


def verify(
    wanted: Specialisation, captured: Capture, found: Verified, platform: str, devices: Sequence[DeviceInfo]
) -> None:
    """Compare a program that the daemon lowered with the one that this process would make. Imports jax."""
    jitted = own_jit(wanted.over_leaves().function, donate_argnums=wanted.donated_sent, **wanted.options.of_program())
    quiet = io.StringIO()  # what the daemon's trace printed is printed once
    with (
        without_locations(),
        backend_view.of(devices),
        warnings.catch_warnings(),
        contextlib.redirect_stdout(quiet),
        contextlib.redirect_stderr(quiet),
    ):
        warnings.simplefilter("ignore")  # the daemon's trace has reported them
        traced = jitted.trace(*map(abstract, wanted.specs_sent))
        text = traced.lower(lowering_platforms=(platform,)).as_text()
    callbacks = callback_names(traced.jaxpr, captured.index_of)
    here, there = [*text.splitlines(), *callbacks], [*found.text.splitlines(), *found.callbacks]
    for number, (mine, other) in enumerate(itertools.zip_longest(here, there, fillvalue="nothing"), 1):
        if mine != other:
            raise ProgramsDiffer(
                f"{wanted.name} is another program when the daemon traces it. They differ first in line {number}:\n"
                f"  here:   {mine.strip()}\n  daemon: {other.strip()}\n"
                "Please report this, with the function. Its program is in the cache: `jitserver cache rm "
                f"{wanted.name}` removes it"
            )


@contextlib.contextmanager
def without_locations() -> Iterator[None]:
    """Keep file names and lines out of the program's text, so that moving code does not change it."""
    import jax

    name = "jax_traceback_in_locations_limit"  # of the whole process, hence the lock
    with _one_at_a_time:
        before = getattr(jax.config, name)
        jax.config.update(name, 0)
        try:
            yield
        finally:
            jax.config.update(name, before)
