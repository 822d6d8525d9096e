"""What a client knows of a program that the daemon holds for it, and how to call it."""

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from jitclient.arrays.array import FETCHED_WITH_CALL, Array
from jitclient.calls.arguments import outgoing
from jitclient.capture import Capture
from jitclient.errors import ProtocolError
from jitclient.local_jax.interop import is_jax_array
from jitclient.notices.warned import warn
from jitclient.sessions.failures import to_exception
from jitclient.sessions.session import Session
from jitclient.trees import tree
from jitclient.wire import values
from jitclient.wire.arrays import HostArray, inline_most, nbytes_of
from jitclient.wire.messages import Call, Failure, Prepared, Run, Spec


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    """An executable at a daemon, by the name it has in one session there."""

    session: Session
    generation: int
    capture: Capture | None  # None where it was traced in this process, and cannot be captured at all
    prepared: Prepared
    specs: tuple[Spec, ...]  # of the leaves
    unflatten: Callable[[Sequence[Any]], Any]
    looks: tuple[int, ...]  # results small enough to come with the answer
    stamp: Hashable  # of the declared inputs that it was made of

    @classmethod
    def of(
        cls,
        session: Session,
        generation: int,
        capture: Capture | None,
        prepared: Prepared,
        specs: tuple[Spec, ...],
        structure: tree.Structure,
        stamp: Hashable = (),
    ) -> "Program":
        """The program that the daemon prepared, whose results have that structure. Warns as its trace did."""
        for warned in prepared.warnings:
            warn(warned.text, _category(warned.category))
        return cls(
            session=session,
            generation=generation,
            capture=capture,
            prepared=prepared,
            specs=specs,
            unflatten=tree.unflattener(structure),
            looks=_small(prepared.results),
            stamp=stamp,
        )

    def is_valid(self, session: Session) -> bool:
        """Whether it is still what a call would get: same daemon, same stay, same function."""
        if session is not self.session or session.generation != self.generation:
            return False
        return self.capture is None or self.capture.unchanged()

    def call(self, leaves: Sequence[Any]) -> Any:
        """Runs it on the leaves of the arguments; returns the tree of results.

        Raises:
            DaemonLost: the daemon went away; nothing tells whether the call ran.
            ArrayLost: an argument was lost with its daemon.
            BaseException: what the call raised, as its own type where this process has that loaded.
        """
        session, results = self.session, self.prepared.results
        with session.connected():
            if session.generation != self.generation:
                raise Outdated
            if self.prepared.donated:
                _refuse_twice(leaves, self.prepared.donated)
            attachments: list[HostArray] = []
            pairs = zip(leaves, self.specs, strict=True)
            most = inline_most(len(leaves))
            arguments = [outgoing(leaf, spec, session, attachments, most) for leaf, spec in pairs]
            first = session.new_handles(len(results))
            arrays = [Array(session, first + n, spec) for n, spec in enumerate(results)]
            call = Call(self.prepared.executable, tuple(arguments), first)
            fetch = tuple(first + n for n in self.looks)
            message = Run(calls=(call,), fetch=fetch)
            done, fetched = session.run(message, attachments, [results[n] for n in self.looks])
        for _, failure in done.failures:
            raise to_exception(failure, self.capture.object_at if self.capture else values.nothing)
        for call_made, position in done.taken:
            if call_made == first:
                _note_donation(leaves[position])
        for n, value in zip(self.looks, fetched, strict=True):
            if not isinstance(value, Failure):
                arrays[n].set_value(value)
        return self.unflatten(arrays)


def _category(named: values.Value) -> type[Warning]:
    try:
        found = values.decode(named, values.nothing)
    except ProtocolError:  # of a package that this process has not loaded
        return UserWarning
    return found if isinstance(found, type) and issubclass(found, Warning) else UserWarning


class Outdated(Exception):  # noqa: N818
    """The session started anew since the program was prepared."""


def _note_donation(leaf: Any) -> None:
    if type(leaf) is Array:
        leaf.deleted = True
    elif is_jax_array(leaf):
        leaf.delete()


def _refuse_twice(leaves: Sequence[Any], donated: Sequence[int]) -> None:
    """What the runtime does where it sees that two arguments are one: those that travel by value it sees apart."""
    given = [id(leaf) for leaf in leaves if is_jax_array(leaf)]
    for position in donated:
        if given.count(id(leaves[position])) > 1:
            raise RuntimeError(f"Attempt to donate the same buffer twice: argument leaf {position} is given once more")


def _small(results: Sequence[Spec]) -> tuple[int, ...]:
    chosen, total = [], 0
    for n, spec in enumerate(results):
        if total + nbytes_of(spec) <= FETCHED_WITH_CALL:
            total += nbytes_of(spec)
            chosen.append(n)
    return tuple(chosen)
