"""JITSERVER_VERIFY=1: each program that the daemon makes is traced and lowered here too, and the texts are compared."""

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
    """Compare a program that the daemon made with the one that this process would make. Imports jax.

    Args:
        wanted: what it was made for.
        captured: what the daemon made it from.
        found: what it made.
        platform: what the daemon compiles for.
        devices: the daemon's.

    Raises:
        ProgramsDiffer: they are two programs; the message shows the first line that differs.
        BaseException: what the function raises here.
    """
    jitted = own_jit(wanted.over_leaves().function, donate_argnums=wanted.donated_sent, **wanted.options.of_program())
    with client_trace.without_locations(), backend_view.of(devices), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the daemon's trace has told them
        traced = jitted.trace(*map(abstract, wanted.specs_sent))
        text = traced.lower(lowering_platforms=(platform,)).as_text()
    callbacks = callback_names(traced.jaxpr, captured.index_of)
    here, there = [*text.splitlines(), *callbacks], [*found.text.splitlines(), *found.callbacks]
    for number, (mine, other) in enumerate(itertools.zip_longest(here, there, fillvalue="nothing"), 1):
        if mine != other:
            raise ProgramsDiffer(
                f"{wanted.name} is another program where the daemon traces it. They differ first in line {number}:\n"
                f"  here:   {mine.strip()}\n  daemon: {other.strip()}\n"
                "Please report this, with the function. Its program is in the cache: `jitserver cache rm "
                f"{wanted.name}` removes it"
            )
