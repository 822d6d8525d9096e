"""Transfer of arrays to the daemon, where they stay."""

import contextlib
from collections.abc import Sequence
from typing import Any

from jitclient.arrays.array import Array, make_handles
from jitclient.calls import copies
from jitclient.calls.arguments import outgoing
from jitclient.calls.attempts import attempted
from jitclient.errors import ArrayBudgetExceeded
from jitclient.jaxside.interop import is_jax_array
from jitclient.session.exceptions import to_exception
from jitclient.session.retry import with_retries
from jitclient.session.session import Session
from jitclient.wire.array_transport import HostArray
from jitclient.wire.messages import MAX_ITEMS, Put, Run, Spec
from jitclient.wire.shardings import Sharding


def put(session: Session, leaves: Sequence[Any], specs: Sequence[Spec], default: Sharding | None = None) -> list[Array]:
    """Put leaves where their specs say, except those that are there already. Completes all earlier calls first.

    `default` is the device of leaves without a sharding, if it is not the first device.
    """
    # Retrying is safe: this process still has the values, and drops the handles of a failed attempt.
    return attempted(session, lambda: _put(session, leaves, specs, default=default))


def with_copies(
    session: Session, program: int, leaves: Sequence[Any], specs: Sequence[Spec], places: Sequence[int]
) -> Sequence[Any]:
    """Replace leaves of a call at `places` by their copies on the daemon; make due copies, if there is room."""
    ours = {id(leaves[n]): n for n in places if is_jax_array(leaves[n])}
    if not ours:
        return leaves
    found_copies = {key: copies.copy_of(leaves[n], session) for key, n in ours.items()}
    due = [n for key, n in ours.items() if found_copies[key] is None and copies.record_use(leaves[n], program)]
    if due:
        made: Sequence[Array | None] = [None] * len(due)
        with contextlib.suppress(ArrayBudgetExceeded):
            given = [leaves[n] for n in due], [specs[n] for n in due]
            made = with_retries(session, lambda: _put(session, *given, is_spare=True), repeats=1)
        for n, copy in zip(due, made, strict=True):
            copies.record_copy(leaves[n], copy)
            found_copies[id(leaves[n])] = copy
    found: list[Any] = list(leaves)
    for n in places:
        copy = found_copies.get(id(leaves[n]))
        if copy is not None:
            found[n] = copy
    return found


def _put(
    session: Session,
    leaves: Sequence[Any],
    specs: Sequence[Spec],
    is_spare: bool = False,
    default: Sharding | None = None,
) -> list[Array]:
    if len(leaves) > MAX_ITEMS:
        first = _put(session, leaves[:MAX_ITEMS], specs[:MAX_ITEMS], is_spare, default)
        return first + _put(session, leaves[MAX_ITEMS:], specs[MAX_ITEMS:], is_spare, default)
    attachments: list[HostArray] = []
    puts: list[Put] = []
    arrays: list[Array] = []
    with session:
        for leaf, spec, value in zip(leaves, specs, outgoing(leaves, specs, session, attachments), strict=True):
            if isinstance(value, int) and leaf.spec.sharding == spec.sharding:  # already on the daemon
                arrays.append(leaf)
                continue
            handle = session.new_handles(1)
            [array] = make_handles(session, handle, [spec])
            array.place = None if spec.sharding else default
            arrays.append(array)
            puts.append(Put(spec, value, handle, is_spare, default))
        reply, _ = session.run(Run(puts=puts), attachments)
    # Queued calls may have failed as well, but using their own results raises those failures.
    ours = {one.handle for one in puts}
    for handles, failure in reply.failures:
        if not ours.isdisjoint(handles):
            # Otherwise the traceback would hold the arrays that were put.
            arrays.clear()
            raise to_exception(failure)
    return arrays
