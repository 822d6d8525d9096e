"""Execution of Runs in general: one Run of a session, in the order of the message."""

import collections
import functools
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from jitclient.core.polling import Polling
from jitclient.errors import ArrayBudgetExceeded, DaemonDraining, DaemonLost, ProgramLost, ProtocolError
from jitclient.wire import labels
from jitclient.wire.array_transport import HostArray, inline_limit, nbytes_of, pack
from jitclient.wire.messages import Attached, Call, Failure, Put, Run, Spec
from jitclient.wire.reply import Reply
from jitclient.wire.shardings import Sharding
from jitserver.daemon.run_channel import ReadAttachment, RunChannel
from jitserver.daemon.sessions.session import DaemonSession
from jitserver.programs.callbacks import CallClient
from jitserver.programs.devices import memories
from jitserver.programs.devices.backend import backend
from jitserver.programs.devices.memories import Bytes
from jitserver.programs.engine import Engine
from jitserver.programs.exceptions import Failed, failure_of, is_exhausted
from jitserver.programs.program import CompiledProgram

Data = bytes | HostArray

Answer = tuple[Reply, list[HostArray]]
"""Reply to a Run, and the values that are attached to it."""

_ADDRESSABLE_BYTES = 1 << 47
# Seconds for which an answer waits for transfers, and between two looks at them.
_TRANSFER_SECONDS = 0.1
_TRANSFER_INTERVAL = 1e-4


class Service(Protocol):
    """The part of the daemon's service that Runs need."""

    engine: Engine
    refuses_calls: bool


def answer(service: Service, session: DaemonSession, run: Run, channel: RunChannel) -> Answer:
    """Execute a Run; return the reply, and the values that follow it.

    Args:
        service: runs the programs, or refuses calls, because the daemon is stopping.
        session: the session with the arrays and programs.
        run: the message.
        channel: the exchange of attachments and callbacks with the client.

    Raises:
        ProtocolError: the message is invalid for this session; the connection must be closed.
    """
    engine, reply = service.engine, Reply(run.number)
    # A separate function, so that no local variable refers to the block: otherwise it could not be returned.
    _do(engine, session, run, channel, service.refuses_calls, reply)
    for handle in run.wait:
        _wait(engine, session, handle, reply)
    attachments: list[HostArray] = []
    reply.set_values([fetch(engine, session, handle, attachments, len(run.fetch)) for handle in run.fetch])
    if run.block:
        reply.returns_block = _release(engine, channel, run.block)
    into = run.into or (run.block if reply.returns_block else 0)
    if into and attachments and channel.lent.fill(into, attachments):
        reply.shared, attachments = True, []
    return reply, attachments


def _release(engine: Engine, channel: RunChannel, block: int) -> bool:
    """Return a block of arguments to the client; wait for the transfers to a device that read it.

    Otherwise, the client would lease another one for each call, and make all of its pages.

    Returns:
        Whether the client may use the block again.
    """
    engine.release_host_buffers()
    if not backend().shares_host_memory:
        polling = Polling(_TRANSFER_SECONDS, _TRANSFER_INTERVAL)
        while channel.lent.is_read(block) and polling.pause():
            engine.release_host_buffers()
    return channel.lent.release_arguments(block)


def _do(engine: Engine, session: DaemonSession, run: Run, channel: RunChannel, draining: bool, reply: Reply) -> None:
    over_budget = None if run.block else _over_budget(session, run)
    read: ReadAttachment = channel.attachments_of(run.block) if over_budget is None else channel.skip
    # Read all attachments first, so that an error leaves none on the socket.
    calls = [_Call(session, call, read) for call in run.calls]
    puts = [(put, _data(put.value, put.spec, read)) for put in run.puts]
    ran: list[tuple[CompiledProgram, float]] = []
    with engine.counters.lock:  # inlined, because every call would pay for a function
        engine.counters.calls += len(calls)
    try:
        for call in calls:
            call.run(engine, draining, reply, ran, channel.call_client, over_budget)
    finally:
        if ran:
            engine.counters.add_run(session, ran)
    if run.drop:
        session.forget(run.drop)
    refused: Failed | None = None
    for put, data in puts:
        refused = _put(engine, session, put, data, reply, over_budget if data is None else refused) or refused


def _over_budget(session: DaemonSession, run: Run) -> Failed | None:
    """Return the failure of a Run whose attachments exceed the memory budget of arrays; None if they fit."""
    needs = collections.Counter[int]()
    for nbytes, spec, default in _attached(session, run):
        needs.update(_needs(nbytes, spec.shape, spec.sharding or default))
    if session.budget.have_room(needs):
        return None
    for handle in [*run.drop, *(handle for call in run.calls for handle in call.drop)]:
        array = session.arrays.get(handle)
        if array is not None and type(array) is not Failed:
            needs.subtract(memories.bytes_of(array))
    what = (
        f"the array {labels.of_spec(run.puts[0].spec)} sent by a program"
        if len(run.puts) == 1
        else "the arrays sent by a program"
    )
    try:
        for memory, nbytes in needs.items():
            session.budget.of(memory).recount(max(nbytes, 0), what)
    except ArrayBudgetExceeded as error:
        return Failed(failure_of(error))
    return None


def _attached(session: DaemonSession, run: Run) -> Iterator[tuple[int, Spec, Sharding | None]]:
    """Yield the size of each attachment, its spec, and its sharding if the spec has none."""
    for call in run.calls:
        if Attached in map(type, call.arguments):
            try:
                specs = session.executable(call.executable).program.specs
            except (IndexError, DaemonLost, ProgramLost):  # the call will raise it
                continue
            for value, spec in zip(call.arguments, specs):  # noqa: B905  (the call checks their number)
                if isinstance(value, Attached):
                    yield value.nbytes, spec, None
    for put in run.puts:
        if isinstance(put.value, Attached):
            yield put.value.nbytes, put.spec, put.default


def _needs(nbytes: int, shape: tuple[int, ...], place: Sharding | None) -> Bytes:
    try:
        return memories.bytes_at(nbytes, shape, place)
    except Exception:  # the sharding does not fit, and its use reports the reason
        return {}


def _data(value: int | bytes | Attached, spec: Spec, read: ReadAttachment) -> int | Data | None:
    if not isinstance(value, Attached):
        return value
    if value.nbytes != nbytes_of(spec) or not 0 <= value.nbytes < _ADDRESSABLE_BYTES:
        raise ProtocolError(f"an attachment of {value.nbytes:,} bytes is not {spec.dtype}{list(spec.shape)}")
    return read(value.nbytes)


class _Call:
    """A call of a Run with its arguments."""

    __slots__ = ("arguments", "call", "lost", "program", "session")

    def __init__(self, session: DaemonSession, call: Call, read: ReadAttachment) -> None:
        self.session, self.call = session, call
        self.lost: Failed | None = None
        try:
            self.program: CompiledProgram = session.executable(call.executable).program
        except IndexError as error:
            raise ProtocolError(f"this session has no executable {call.executable}") from error
        except (DaemonLost, ProgramLost) as error:
            self._mark_lost(error, read)
            return
        specs = self.program.specs
        if len(specs) != len(call.arguments):
            raise ProtocolError(f"{len(call.arguments)} leaves for a program that takes {len(specs)}")
        self.arguments: list[Any] = [  # handles, and data
            _data(value, specs[n], read) if type(value) is Attached else value for n, value in enumerate(call.arguments)
        ]

    def _mark_lost(self, error: DaemonLost | ProgramLost, read: ReadAttachment) -> None:
        """Record that the program was lost with the previous daemon, or was released.

        The first result then holds this failure; the other results do not exist.
        """
        self.lost = Failed(failure_of(error))
        for value in self.call.arguments:
            if type(value) is Attached:
                read(value.nbytes)  # to reach the data that follows it

    def run(
        self,
        engine: Engine,
        draining: bool,
        reply: Reply,
        ran: list[tuple[CompiledProgram, float]],
        call_client: CallClient | None = None,
        over_budget: Failed | None = None,
    ) -> None:
        """Run the call. If it fails, its results, and all results computed from them, raise the same exception."""
        session, call = self.session, self.call
        if call.drop:
            session.forget(call.drop)
        if self.lost is not None:
            reply.add_failure(call.results, self.lost.failure)
            session.keep(call.results, [self.lost])
            return
        program = self.program
        try:
            if draining:
                raise DaemonDraining("the daemon is stopping and accepts no new calls")
            if over_budget is not None and None in self.arguments:
                raise over_budget
            for memory, nbytes in program.needs.items():
                budget = session.budget.of(memory)
                budget.left -= nbytes
                if budget.left < 0 < nbytes:
                    self._check_budget(memory)
            if program.donated:  # a Run of an earlier connection may still read the donated arrays
                session.active.settle()
            leaves = [
                session.array(value) if type(value) is int else decode(value)
                for value, decode in zip(self.arguments, program.decoders, strict=True)
            ]
            for position in program.donated:
                leaves[position] = engine.on_device(leaves[position])
            may_repeat = not (program.donated or program.slots)
            results = _with_memory(
                engine, session, program.needs, lambda: engine.run(program, leaves, ran, call_client), may_repeat
            )
        # A user's callback may raise SystemExit, which the client must receive.
        except BaseException as error:
            note_failure(engine, session, call, program, error, reply)
        else:
            session.keep(call.results, results, call.executable)
            # As in JAX, a donated array stays valid if the program could not use it.
            reply.used_donations += [
                (call.results, position) for position in program.donated if leaves[position].is_deleted()
            ]

    def _check_budget(self, memory: int) -> None:
        """Raise ArrayBudgetExceeded if a memory has no room for the results, less the donated arrays."""
        program, given = self.program, self.arguments
        taken = [program.specs[position] for position in program.donated if type(given[position]) is int]
        label = self.session.executable(self.call.executable).info.label
        nbytes = program.needs[memory] - memories.bytes_of_specs(taken).get(memory, 0)
        self.session.budget.of(memory).recount(nbytes, label)


def run_one(
    engine: Engine, session: DaemonSession, call: Call, reply: Reply, ran: list[tuple[CompiledProgram, float]]
) -> None:
    """Run a call without attachments."""
    _Call(session, call, _no_attachment).run(engine, False, reply, ran)


def note_failure(
    engine: Engine, session: DaemonSession, call: Call, program: CompiledProgram, error: BaseException, reply: Reply
) -> None:
    """Replace the results of a failed call by its failure."""
    # Callbacks may have happened, so that the client must not repeat the call at the next daemon.
    failure = failure_of(error if program.slots else engine.health.reported(error))
    reply.add_failure(call.results, failure)
    session.keep(call.results, [Failed(failure)] * len(program.results))


def _with_memory(
    engine: Engine, session: DaemonSession, needs: Bytes, attempt: Callable[[], Any], may_repeat: bool = True
) -> Any:
    """Return what an attempt returns, which is repeated once if a device has no memory left.

    Before that, the arrays are freed of the client that has been away for longest and holds some in a memory that the
    attempt `needs`. If that is not sufficient, a note of the exception says who holds arrays there.
    """
    try:
        return attempt()
    except Exception as error:
        if not is_exhausted(error):
            raise
        if not may_repeat:
            error.add_note(session.budget.holders(needs))
            raise
    session.budget.free_some(needs)
    engine.release_host_buffers()
    try:
        return attempt()
    except Exception as error:
        if is_exhausted(error):
            error.add_note(session.budget.holders(needs))
        raise


def _no_attachment(nbytes: int) -> HostArray:
    raise ProtocolError(f"the message refers to {nbytes:,} bytes of attachments, and has none")


def _put(
    engine: Engine, session: DaemonSession, put: Put, data: int | Data | None, reply: Reply, refused: Failed | None
) -> Failed | None:
    """Put an array, unless it is refused. Return what refuses the Run's others, as a count for each would be slow."""
    if refused is not None:
        _fail_put(session, put, refused, reply)
        return None
    try:
        source: Any = session.array(data) if isinstance(data, int) else data
        # Do not compute the size from the spec, which may be invalid.
        nbytes = len(source) if isinstance(source, bytes) else source.nbytes
        needs = _needs(nbytes, put.spec.shape, put.spec.sharding or put.default)
        session.budget.take(needs, f"the array {labels.of_spec(put.spec)} sent by a program", put.is_spare)
        place: Callable[[], Any] = (
            functools.partial(engine.moved, source, put.spec)
            if isinstance(data, int)
            else functools.partial(engine.put, source, put.spec, put.default)
        )
        session.keep(put.handle, [_with_memory(engine, session, needs, place)])
    except Exception as error:
        failed = Failed(failure_of(engine.health.reported(error)))
        _fail_put(session, put, failed, reply)
        return failed if isinstance(error, ArrayBudgetExceeded) and not put.is_spare else None
    return None


def _fail_put(session: DaemonSession, put: Put, failed: Failed, reply: Reply) -> None:
    """Report the failure of a put. As with a call, its handle raises it from then on, and has no earlier array."""
    session.keep(put.handle, [failed])
    reply.add_failure(put.handle, failed.failure)


def _wait(engine: Engine, session: DaemonSession, handle: int, reply: Reply) -> None:
    try:
        session.array(handle).block_until_ready()
    except Exception as error:
        reply.add_failure(handle, _late_failure(engine, session, handle, error))


def fetch(
    engine: Engine, session: DaemonSession, handle: int, attachments: list[HostArray], count: int
) -> bytes | Attached | Failure:
    """Return the value of an array, one of `count` in a message, or its failure."""
    try:
        return pack(engine.to_host(session.array(handle)), attachments, inline_limit(count))
    except Exception as error:
        return _late_failure(engine, session, handle, error)


def _late_failure(engine: Engine, session: DaemonSession, handle: int, error: Exception) -> Failure:
    """Return the failure of an array that was launched without an error.

    If the device had no memory for it, the call cannot be repeated here, as its arguments may be gone. So memory is
    freed for the next call, once for all results of this one, and a note says who holds arrays there.
    """
    if not is_exhausted(error):
        return failure_of(engine.health.reported(error))
    needs = memories.bytes_of(session.array(handle))
    if session.freed_at_call != engine.counters.calls:
        session.freed_at_call = engine.counters.calls
        session.budget.free_some(needs)
        engine.release_host_buffers()
    session.forget([handle])  # it has no memory
    error.add_note(session.budget.holders(needs))
    failure = failure_of(error)
    session.keep(handle, [Failed(failure)])
    return failure
