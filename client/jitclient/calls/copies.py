"""Copies on the daemon of arrays of the client's own jax: what a program is given a second time need not travel again.

A copy lives as long as the array that it stands for, and only arrays that nobody can change have one: those that XLA
made. What was made of numpy's memory, or of another library's, may share it, and travels with each call.
"""

import functools
import os
import weakref
from collections.abc import Sequence
from typing import Any

from jitclient.arrays.array import Array
from jitclient.local_jax.memory import is_of_xla
from jitclient.sessions.session import Session
from jitclient.wire.array_transport import is_key, nbytes_of
from jitclient.wire.messages import Spec

_LEAST = 1024  # bytes; less is sent about as quickly as its name


class _Given:
    """What is known of an array that calls were given."""

    __slots__ = ("copy", "is_refused", "itself", "programs")

    def __init__(self, leaf: Any) -> None:
        self.itself = weakref.ref(leaf, functools.partial(_given.pop, id(leaf)))
        self.programs: set[int] = set()
        self.copy: Array | None = None
        self.is_refused = False


_given: dict[int, _Given] = {}
os.register_at_fork(after_in_child=_given.clear)  # the parent frees its copies when it likes


def _known(leaf: Any) -> _Given | None:
    given = _given.get(id(leaf))
    # Another array may have had that number: where forgetting it failed, nobody heard of that.
    return given if given is not None and given.itself() is leaf else None


def places(specs: Sequence[Spec], donated: Sequence[int]) -> tuple[int, ...]:
    """The leaves of a program that may have copies."""
    small = [nbytes_of(spec) < _LEAST or is_key(spec) or spec.sharding is not None for spec in specs]
    return tuple([n for n, is_small in enumerate(small) if not is_small and n not in donated])


def copy_of(leaf: Any, session: Session) -> Array | None:
    """What stands for an array of the client's own jax at that daemon, if something does. Whoever names it in a call
    holds it until that is on its way: another thread may let go of it.
    """
    given = _known(leaf)
    copy = given.copy if given is not None else None
    if given is None or copy is None or not copy.is_at(session):
        return None
    if leaf.is_deleted():
        given.copy = None
        return None
    return copy


def note_given(leaf: Any, program: int) -> bool:
    """Notes that the program of that name is given an array.

    Returns:
        Whether the array is to have a copy: that program was given it before, and nobody can change it.
    """
    given = _known(leaf)
    if given is None:
        given = _given[id(leaf)] = _Given(leaf)
    if program not in given.programs:
        given.programs.add(program)
        return False
    if not given.is_refused and given.copy is None:
        given.is_refused = not is_of_xla(leaf)
    return not given.is_refused


def note(leaf: Any, copy: Array | None) -> None:
    """Says which array stands for that one from now on, or that the daemon has no room for any."""
    given = _known(leaf)
    if given is not None:
        given.copy, given.is_refused = copy, copy is None


def let_go() -> bool:
    """Frees all copies, where the daemon has no room for something else; whether there was one."""
    held = [given for given in list(_given.values()) if given.copy is not None]
    for given in held:
        given.copy, given.is_refused = None, True
    return bool(held)
