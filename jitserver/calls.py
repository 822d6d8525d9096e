"""The hot path: one Run of one session, in the order that the message says."""

import msgspec

from jitclient.errors import DaemonDraining, ProtocolError
from jitclient.wire.arrays import HostArray, inline_most, nbytes_of, pack
from jitclient.wire.messages import Attached, Call, Done, Failure, Put, Run, Spec
from jitserver.connection import Answered, Lane, Take
from jitserver.engine.engine import Engine
from jitserver.engine.failures import failure_of
from jitserver.engine.program import Program
from jitserver.session import Session

Data = bytes | HostArray

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Run).decode


def answer(engine: Engine, session: Session, body: bytes, lane: Lane, draining: bool) -> Answered:
    """Does what a Run asks.

    Raises:
        ProtocolError: the message makes no sense for this session; the connection is of no more use.
    """
    run = _decode(body)
    # What was read of a block is gone with the frame of that function: it could not come back otherwise.
    failures, taken, made = _do(engine, session, run, lane.beside(run.block), draining)
    for handle in run.wait:
        _wait(session, handle, failures)
    attachments: list[HostArray] = []
    most = inline_most(len(run.fetch))
    values = tuple(_fetch(engine, session, handle, attachments, most) for handle in run.fetch)
    done = Done(tuple(failures), values, tuple(taken))
    if run.into and attachments and lane.lent.fill(run.into, attachments):
        done.shared, attachments = True, []
    if run.block:
        engine.let_go()
        done.back = lane.lent.gives_back(run.block)
    return Answered(_encode(done), attachments, made)


def _do(
    engine: Engine, session: Session, run: Run, take: Take, draining: bool
) -> tuple[list[tuple[int, Failure]], list[tuple[int, int]], list[int]]:
    # All that goes beside the frame is read before anything else can go wrong.
    puts = [(put, _data(put.value, put.spec, take)) for put in run.puts]
    calls = [(call, *_arguments(session, call, take)) for call in run.calls]
    failures: list[tuple[int, Failure]] = []
    taken: list[tuple[int, int]] = []
    made = [put.handle for put in run.puts]
    session.forget(run.drop)
    for put, data in puts:
        _put(engine, session, put, data, failures)
    for call, program, arguments in calls:
        _call(engine, session, call, program, arguments, draining, failures, taken)
        made += range(call.results, call.results + len(program.results))
    return failures, taken, made


# ---- reading


def _arguments(session: Session, call: Call, take: Take) -> tuple[Program, list[int | Data]]:
    try:
        program: Program = session.executable(call.executable).program
    except IndexError as error:
        raise ProtocolError(f"this session has no executable {call.executable}") from error
    if len(program.specs) != len(call.arguments):
        raise ProtocolError(f"{len(call.arguments)} leaves for a program that takes {len(program.specs)}")
    pairs = zip(call.arguments, program.specs, strict=True)
    return program, [value if isinstance(value, int) else _data(value, spec, take) for value, spec in pairs]


def _data(value: bytes | Attached, spec: Spec, take: Take) -> Data:
    if isinstance(value, bytes):
        return value
    if value.nbytes != nbytes_of(spec) or value.nbytes < 0:
        raise ProtocolError(f"{value.nbytes:,} bytes are no {spec.dtype}{list(spec.shape)}")
    return take(value.nbytes)


# ---- doing


def _put(engine: Engine, session: Session, put: Put, data: Data, failures: list[tuple[int, Failure]]) -> None:
    try:
        session.arrays[put.handle] = engine.resident(data, put.spec)
    except Exception as error:
        failures.append((put.handle, failure_of(error)))


def _call(
    engine: Engine,
    session: Session,
    call: Call,
    program: Program,
    arguments: list[int | Data],
    draining: bool,
    failures: list[tuple[int, Failure]],
    taken: list[tuple[int, int]],
) -> None:
    try:
        if draining:
            raise DaemonDraining("the daemon is stopping and takes no new calls")
        leaves = [
            session.array(value) if isinstance(value, int) else engine.incoming(value, spec)
            for value, spec in zip(arguments, program.specs, strict=True)
        ]
        for position in program.donated:
            leaves[position] = engine.on_device(leaves[position])
        results = engine.run(program, leaves)
        # Not all that is donated is of use to a program: what is not lives on, as in JAX.
        taken += [(call.results, position) for position in program.donated if leaves[position].is_deleted()]
    except BaseException as error:  # a callback of the user's may raise SystemExit: it is the client's to see
        failures.append((call.results, failure_of(error, program.loaded, session.locations(call.executable))))
    else:
        for number, result in enumerate(results):
            session.arrays[call.results + number] = result


def _wait(session: Session, handle: int, failures: list[tuple[int, Failure]]) -> None:
    try:
        session.array(handle).block_until_ready()
    except Exception as error:
        failures.append((handle, failure_of(error)))


def _fetch(
    engine: Engine, session: Session, handle: int, attachments: list[HostArray], most: int
) -> bytes | Attached | Failure:
    try:
        return pack(engine.to_host(session.array(handle)), attachments, most)
    except Exception as error:
        return failure_of(error)
