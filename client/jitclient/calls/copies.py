"""Copies of the client's own jax arrays on the daemon: an array that a program gets a second time is not sent again.

A copy lives as long as its original. Only immutable arrays have copies: those that XLA allocated. An array made from
numpy's or another library's memory may share that memory, and is sent with each call.
"""

import functools
import os
import weakref
from collections.abc import Sequence
from typing import Any

from jitclient.arrays.array import Array
from jitclient.jaxside.memory import owns_xla_memory
from jitclient.session.session import Session
from jitclient.wire.array_transport import is_key, nbytes_of
from jitclient.wire.messages import Spec

# In bytes. Sending a smaller array is about as fast as sending a handle.
_MIN_BYTES = 1024


class _PassedArray:
    """State of an array that was passed to calls."""

    __slots__ = ("copy", "is_uncopyable", "programs", "reference")

    def __init__(self, leaf: Any) -> None:
        self.reference = weakref.ref(leaf, functools.partial(_passed.pop, id(leaf)))
        self.programs: set[int] = set()
        self.copy: Array | None = None
        self.is_uncopyable = False


_passed: dict[int, _PassedArray] = {}
os.register_at_fork(after_in_child=_passed.clear)  # the parent frees the copies


def _known(leaf: Any) -> _PassedArray | None:
    given = _passed.get(id(leaf))
    # The id may be that of an earlier array, whose weakref callback failed.
    return given if given is not None and given.reference() is leaf else None


def places(specs: Sequence[Spec], donated: Sequence[int]) -> tuple[int, ...]:
    """Return the positions of the leaves of a program that may have copies."""
    small = [nbytes_of(spec) < _MIN_BYTES or is_key(spec) or spec.sharding is not None for spec in specs]
    return tuple([n for n, is_small in enumerate(small) if not is_small and n not in donated])


def copy_of(leaf: Any, session: Session) -> Array | None:
    """Return the copy of a jax array at the session's daemon; None if there is none.

    Hold the copy until the call is sent: another thread may free all copies.
    """
    given = _known(leaf)
    copy = given.copy if given is not None else None
    if given is None or copy is None or not copy.is_at(session):
        return None
    if leaf.is_deleted():
        given.copy = None
        return None
    return copy


def record_use(leaf: Any, program: int) -> bool:
    """Note that a program gets an array; return whether to copy the array to the daemon.

    An array is copied if the program got it before, and the array cannot change.
    """
    given = _known(leaf)
    if given is None:
        given = _passed[id(leaf)] = _PassedArray(leaf)
    if program not in given.programs:
        given.programs.add(program)
        return False
    if not given.is_uncopyable and given.copy is None:
        given.is_uncopyable = not owns_xla_memory(leaf)
    return not given.is_uncopyable


def record_copy(leaf: Any, copy: Array | None) -> None:
    """Note the copy of an array; None notes that the daemon has no room for it."""
    given = _known(leaf)
    if given is not None:
        given.copy, given.is_uncopyable = copy, copy is None


def free_all() -> bool:
    """Free all copies to make room on the daemon; return whether there were any."""
    held = [given for given in list(_passed.values()) if given.copy is not None]
    for given in held:
        given.copy, given.is_uncopyable = None, True
    return bool(held)
