"""Program on the daemon, and calls of it."""

import contextlib
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from jitclient.arrays.array import FETCHED_WITH_CALL, Array, fetch_together, keep_call, make_handles
from jitclient.arrays.repeatable import Again, are_values
from jitclient.calls import copies
from jitclient.calls.arguments import outgoing
from jitclient.calls.attempts import raise_failure, raised_by_call
from jitclient.calls.moved_in import Moving
from jitclient.calls.puts import with_copies
from jitclient.calls.specialisation import Specialisation
from jitclient.capture.dump import Capture
from jitclient.errors import DaemonDraining, DaemonLost, NotSent
from jitclient.jaxside import tree
from jitclient.jaxside.context import default_device
from jitclient.jaxside.interop import is_jax_array
from jitclient.jaxside.runtime_errors import check_donated_once, check_not_deleted
from jitclient.session.called_back import Callbacks, as_raised
from jitclient.session.exceptions import to_exception
from jitclient.session.session import REPLACED, Session
from jitclient.wire.array_transport import HostArray, nbytes_of
from jitclient.wire.messages import MAX_ITEMS, Attached, Call, Failure, Prepared, Run, Spec
from jitclient.wire.shardings import Sharding


class Program:
    """Program on the daemon, identified by its number in one session."""

    def __init__(
        self,
        session: Session,
        generation: int,
        capture: Capture | None,
        prepared: Prepared,
        wanted: Specialisation,
        unflatten: Callable[[Sequence[Any]], Any],
        stamp: Hashable,
        functions: Sequence[Callable[..., Any]] = (),
    ) -> None:
        """Make a program from the daemon's answer. `unflatten` builds the tree of results, which are in wire order."""
        place = default_device(wanted.context)
        self.session = session
        self.generation = generation
        self.capture = capture  # None if the function cannot be captured
        self.prepared = prepared
        self.specs = wanted.specs_sent
        self.order = wanted.order
        self.unflatten = unflatten if place is None else _placing(place, unflatten)
        # Positions of the results that are small enough to come with the answer.
        self.inline = _small(prepared.results)
        # Stamp of the declared inputs from which the program was made.
        self.stamp = stamp
        # Positions of the leaves that may have copies on the daemon.
        self.copied = copies.places(self.specs, prepared.donated)
        # Positions of the donated leaves that a call really uses, known after the first call.
        self.used_donations: list[tuple[int, ...]] = []
        # Plan by types of leaves; an empty list if none was made yet, None if none can be made.
        self.plans: dict[Hashable, list[Any] | None] = {}
        self.moving = Moving(session, generation, prepared, self.specs, wanted.label, place is not None)
        self.callbacks = Callbacks(functions, prepared.slots) if prepared.slots else None
        self._released = session.released

    def __del__(self) -> None:
        # Missing if `__init__` raised.
        if hasattr(self, "_released"):
            self._released.append((self.generation, self.prepared.executable))

    def is_valid(self, session: Session) -> bool:
        """Return whether this is still the program of a call: same daemon, same session, same function."""
        if session is not self.session:
            return False
        if session.program_generation != self.generation and self.moving.done is None:
            return False
        return self.capture is None or self.capture.unchanged()

    def call(self, leaves: Sequence[Any], again: Again | None = None) -> Any:
        """Run the program on the leaves of the arguments; return the tree of results.

        A call with arrays of the daemon (copies do not count) is queued and returns before it has run: using its
        results raises its errors. So is a call of values alone that can be made `again`, if the daemon computes
        asynchronously, too. Other calls, and programs that may raise, are waited for.
        """
        session, prepared = self.session, self.prepared
        if self.order is not None:
            leaves = tree.as_sent(leaves, self.order)
        moved_in = self.moving.done
        if moved_in is not None:
            return self.unflatten(moved_in.call(leaves))
        with session:
            given: Sequence[Any] = leaves
            if self.copied:
                given = with_copies(session, prepared.executable, leaves, self.specs, self.copied)
            if session.program_generation != self.generation:
                raise NotSent(REPLACED)
            if self.used_donations:
                check_not_deleted(leaves)
            attachments: list[HostArray] = []
            arguments = outgoing(given, self.specs, session, attachments)
            can_queue = int in map(type, arguments) and Array in map(type, leaves) and not prepared.may_raise
            is_kept = not (can_queue or session.finishes_calls) and self.can_queue_values() and are_values(leaves)
            can_queue = can_queue or (is_kept and again is not None)
            if prepared.donated:
                can_queue = self._is_donation_known(leaves) and can_queue
            if can_queue:
                first = session.new_handles(len(prepared.results))
                arrays = make_handles(session, first, prepared.results)
                session.call_later(prepared.executable, arguments, first, attachments, self.generation)
                if len(self.inline) > 1:
                    fetch_together([arrays[n] for n in self.inline])
                for position in self.used_donations[0] if self.used_donations else ():
                    _note_donation(leaves[position])
                if is_kept and again is not None:
                    keep_call(arrays, again, leaves)
            else:
                arrays = self.call_now(arguments, attachments, leaves)
        self.moving.calls_left -= 1
        if self.moving.calls_left <= 0:
            self.moving.go_on()
        return self.unflatten(arrays)

    def call_again(self, leaves: Sequence[Any]) -> list[Array]:
        """Run the program on values and wait; return its results in wire order."""
        with self.session:
            if self.session.program_generation != self.generation:
                raise NotSent(REPLACED)
            attachments: list[HostArray] = []
            arguments = outgoing(leaves, self.specs, self.session, attachments)
            return self.call_now(arguments, attachments, leaves, waits=True)

    def can_queue_values(self) -> bool:
        """Return whether calls of values alone are queued.

        Where the daemon has computed the results when it answers, a wait costs nothing, and the answer has them.
        """
        prepared = self.prepared
        is_pure = not (prepared.may_raise or prepared.has_effects or prepared.donated)
        return is_pure and self.order is None and self.capture is not None and not self.session.finishes_calls

    def call_now(
        self,
        arguments: list[int | bytes | Attached],
        attachments: Sequence[HostArray],
        leaves: Sequence[Any],
        waits: bool = False,
    ) -> list[Array]:
        """Have the daemon run the program; return the results. Called with the session's lock held.

        The daemon then has the values of small results, and of all if it `waits`.
        """
        session, prepared = self.session, self.prepared
        results, fetch = prepared.results, self.inline
        first = session.new_handles(len(results))
        arrays = make_handles(session, first, results)
        wait = tuple([first + n for n in range(len(results)) if n not in fetch]) if waits else ()
        call, fetched_handles = Call(prepared.executable, arguments, first), tuple(map(first.__add__, fetch))
        run = Run(calls=[call], fetch=fetched_handles, wait=wait)
        with self.callbacks.answered(session) if self.callbacks else contextlib.nullcontext() as raised:
            try:
                reply, fetched = session.run(
                    run, attachments, list(map(results.__getitem__, fetch)), program_generation=self.generation
                )
            except DaemonLost as error:
                error.may_repeat = not (prepared.donated or prepared.has_effects)
                raise
        if raised:
            # A log may keep the frames of a callback's exception, which refer to this frame and its arrays.
            del arrays
            raise raised_by_call(as_raised(raised[0]))
        if reply.failures:
            raise_failure(reply)
        if prepared.donated:
            self.used_donations[:] = [tuple([position for _, position in reply.used_donations])]
            for position in self.used_donations[0]:
                _note_donation(leaves[position])
        for n, value in zip(fetch, fetched, strict=True):
            if not isinstance(value, Failure):
                arrays[n]._value = value
            elif not (prepared.donated or prepared.has_effects):
                _raise_if_draining(value)
        return arrays

    def is_same(self, other: "Program") -> bool:
        """Return whether another program, of another daemon, is the same computation: capture, and trace behind it.

        Without verification (JITSERVER_VERIFY=off), nothing but captures is compared.
        """
        if self.capture is None or other.capture is None:
            return False
        ours, theirs = self.prepared.evidence.digest, other.prepared.evidence.digest
        return self.capture.function_key == other.capture.function_key and ours == theirs

    def _is_donation_known(self, leaves: Sequence[Any]) -> bool:
        """Return whether it is known, from an earlier call, which donated leaves a call uses."""
        if len(set(map(id, leaves))) < len(leaves):
            check_donated_once(leaves, self.prepared.donated)
            return False
        return bool(self.used_donations)


def _placing(place: Sharding, unflatten: Callable[[Sequence[Any]], Any]) -> Callable[[Sequence[Any]], Any]:
    """Return a function that sets each array's place before it builds the tree."""

    def placed(arrays: Sequence[Any]) -> Any:
        for array in arrays:
            array.place = place
        return unflatten(arrays)

    return placed


def _raise_if_draining(failure: Failure) -> None:
    """Raise the failure of a result if its daemon is about to restart, so that the next one makes the call again.

    The device of an asynchronous backend may have failed after the launch. A use of the result raises other failures.
    """
    error = to_exception(failure)
    if isinstance(error, DaemonDraining):
        raise error


def _note_donation(leaf: Any) -> None:
    if type(leaf) is Array:
        leaf.note_donation()
    elif is_jax_array(leaf):
        leaf.delete()


def _small(results: Sequence[Spec]) -> tuple[int, ...]:
    chosen, total = [], 0
    for n, spec in enumerate(results[:MAX_ITEMS]):
        if total + nbytes_of(spec) <= FETCHED_WITH_CALL:
            total += nbytes_of(spec)
            chosen.append(n)
    return tuple(chosen)
