"""JITSERVER_VERIFY=1: each program that the daemon makes is also traced and lowered here, and compared."""

import contextlib
import io
import itertools
import warnings
from collections.abc import Sequence

from jitclient.calls import client_trace
from jitclient.calls.specialisation import Specialisation
from jitclient.codec.capture import Capture
from jitclient.errors import ProgramsDiffer
from jitclient.local_jax import backend_view
from jitclient.local_jax.avals import abstract
from jitclient.local_jax.own_jit import own_jit
from jitclient.tracing.callbacks import callback_names
from jitclient.wire.messages import DeviceInfo, Verified


def verify(
    wanted: Specialisation, captured: Capture, found: Verified, platform: str, devices: Sequence[DeviceInfo]
) -> None:
    """Compare a program that the daemon lowered with the one that this process would make. Imports jax."""
    jitted = own_jit(wanted.over_leaves().function, donate_argnums=wanted.donated_sent, **wanted.options.of_program())
    quiet = io.StringIO()  # what the daemon's trace printed is printed once
    with (
        client_trace.without_locations(),
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
