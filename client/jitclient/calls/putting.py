"""Leaves of a tree that are to live on the daemon."""

from collections.abc import Sequence
from typing import Any

from jitclient.arrays.array import Array
from jitclient.calls.arguments import outgoing
from jitclient.errors import DaemonLost, DaemonSilent
from jitclient.sessions.failures import to_exception
from jitclient.sessions.session import Session
from jitclient.wire.arrays import HostArray
from jitclient.wire.messages import Put, Run, Spec


def put(here: Session, leaves: Sequence[Any], specs: Sequence[Spec]) -> list[Array]:
    """Puts leaves of those specs on the daemon, those that live there already aside; all that was asked before is done
    then.

    Raises:
        ArrayBudgetExceeded: there is no room for them.
        BaseException: what else the daemon could not do.
    """
    try:
        return here.again(lambda: _put(here, leaves, specs))
    except DaemonSilent:
        raise
    except DaemonLost:
        pass  # what is put is still at hand, and what came of it is dropped by now
    return here.again(lambda: _put(here, leaves, specs))


def _put(here: Session, leaves: Sequence[Any], specs: Sequence[Spec]) -> list[Array]:
    attachments: list[HostArray] = []
    puts: list[Put] = []
    arrays: list[Array] = []
    with here:
        for leaf, spec, value in zip(leaves, specs, outgoing(leaves, specs, here, attachments), strict=True):
            if isinstance(value, int):  # it is there already
                arrays.append(leaf)
                continue
            handle = here.new_handles(1)
            arrays.append(Array(here, handle, spec))
            puts.append(Put(spec, value, handle))
        done, _ = here.run(Run(puts=puts), attachments)
    ours = {one.handle for one in puts}  # calls that were queued may have failed too: their results say so
    for handle, failure in done.failures:
        if handle in ours:
            arrays.clear()  # the traceback would hold those for which there was room
            raise to_exception(failure)
    return arrays
