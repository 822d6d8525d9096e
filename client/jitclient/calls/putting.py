"""Leaves of a tree that are to live on the daemon."""

import contextlib
from collections.abc import Sequence
from typing import Any

from jitclient.arrays.array import Array, make_handles
from jitclient.calls import copies
from jitclient.calls.arguments import outgoing
from jitclient.errors import ArrayBudgetExceeded
from jitclient.local_jax.interop import is_jax_array
from jitclient.sessions.failures import to_exception
from jitclient.sessions.session import Session
from jitclient.wire.array_transport import HostArray
from jitclient.wire.messages import Put, Run, Spec


def put(here: Session, leaves: Sequence[Any], specs: Sequence[Spec]) -> list[Array]:
    """Puts leaves of those specs on the daemon, those that live there already aside; all that was asked before is done
    then.

    Raises:
        ArrayBudgetExceeded: there is no room for them.
        BaseException: what else the daemon could not do.
    """
    try:
        return _steadily(here, leaves, specs)
    except ArrayBudgetExceeded:
        if not copies.let_go():
            raise
    return _steadily(here, leaves, specs)


def with_copies(
    here: Session, program: int, leaves: Sequence[Any], specs: Sequence[Spec], places: Sequence[int]
) -> Sequence[Any]:
    """The leaves of a call with what stands for them on the daemon, in those places. What is due for a copy gets one,
    if there is room to spare.
    """
    ours = {id(leaves[n]): n for n in places if is_jax_array(leaves[n])}
    if not ours:
        return leaves
    stand_ins = {key: copies.copy_of(leaves[n], here) for key, n in ours.items()}
    due = [n for key, n in ours.items() if stand_ins[key] is None and copies.note_given(leaves[n], program)]
    if due:
        made: Sequence[Array | None] = [None] * len(due)
        with contextlib.suppress(ArrayBudgetExceeded):
            made = _steadily(here, [leaves[n] for n in due], [specs[n] for n in due], is_spare=True)
        for n, copy in zip(due, made, strict=True):
            copies.note(leaves[n], copy)
            stand_ins[id(leaves[n])] = copy
    found: list[Any] = list(leaves)
    for n in places:
        copy = stand_ins.get(id(leaves[n]))
        if copy is not None:
            found[n] = copy
    return found


def _steadily(here: Session, leaves: Sequence[Any], specs: Sequence[Spec], is_spare: bool = False) -> list[Array]:
    # What is put is still at hand where a daemon is lost, and what came of it is dropped by then.
    return here.again(lambda: _put(here, leaves, specs, is_spare), repeats=1)


def _put(here: Session, leaves: Sequence[Any], specs: Sequence[Spec], is_spare: bool) -> list[Array]:
    attachments: list[HostArray] = []
    puts: list[Put] = []
    arrays: list[Array] = []
    with here:
        for leaf, spec, value in zip(leaves, specs, outgoing(leaves, specs, here, attachments), strict=True):
            if isinstance(value, int):  # it is there already
                arrays.append(leaf)
                continue
            handle = here.new_handles(1)
            arrays += make_handles(here, handle, [spec])
            puts.append(Put(spec, value, handle, is_spare))
        done, _ = here.run(Run(puts=puts), attachments)
    ours = {one.handle for one in puts}  # calls that were queued may have failed too: their results say so
    for handle, failure in done.failures:
        if handle in ours:
            arrays.clear()  # the traceback would hold those for which there was room
            raise to_exception(failure)
    return arrays
