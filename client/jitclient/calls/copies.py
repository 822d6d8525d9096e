"""Copies on the daemon of arrays of the client's own jax: what a program is given a second time need not travel again.

A copy lives as long as the array that it stands for, and only arrays that nobody can change have one: those that XLA
made. What was made of numpy's memory, or of another library's, may share it, and travels with each call.
"""

import weakref
from collections.abc import Sequence
from typing import Any

from jitclient.arrays.array import Array
from jitclient.local_jax.memory import is_of_xla
from jitclient.sessions.session import Session
from jitclient.wire.arrays import is_key, nbytes_of
from jitclient.wire.messages import Spec

_LEAST = 1024  # bytes; less is sent about as quickly as its name


class _Given:
    """What is known of an array that calls were given."""

    __slots__ = ("copy", "is_refused", "itself", "programs")

    def __init__(self, leaf: Any) -> None:
        number = id(leaf)
        self.itself = weakref.ref(leaf, lambda _: _given.pop(number, None))
        self.programs: set[int] = set()
        self.copy: Array | None = None
        self.is_refused = False


_given: dict[int, _Given] = {}


def places(specs: Sequence[Spec], donated: Sequence[int]) -> tuple[int, ...]:
    """The leaves of a program that may have copies."""
    small = [nbytes_of(spec) < _LEAST or is_key(spec) or spec.sharding is not None for spec in specs]
    return tuple([n for n, is_small in enumerate(small) if not is_small and n not in donated])


def copy_of(leaf: Any, session: Session) -> Array | None:
    """What stands for an array of the client's own jax at that daemon, if something does."""
    given = _given.get(id(leaf))
    if given is None or given.copy is None:
        return None
    if leaf.is_deleted():
        given.copy = None
        return None
    return given.copy if given.copy.is_at(session) else None


def is_due(leaf: Any, program: int) -> bool:
    """Whether an array is to have a copy: the program of that name was given it before, and nobody can change it."""
    given = _given.get(id(leaf))
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
    given = _given[id(leaf)]
    given.copy, given.is_refused = copy, copy is None


def let_go() -> bool:
    """Frees all copies, where the daemon has no room for something else; whether there was one."""
    held = [given for given in list(_given.values()) if given.copy is not None]
    for given in held:
        given.copy, given.is_refused = None, True
    return bool(held)
