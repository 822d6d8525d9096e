"""A Run that is like most is answered as any other would be; one that is not is left alone."""

import collections
import dataclasses
import socket
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest
from rpyc.core.service import Service

from jitclient.errors import ProgramLost, ProtocolError
from jitclient.jaxside.avals import abstract
from jitclient.session.exceptions import to_exception
from jitclient.wire.array_transport import HostArray
from jitclient.wire.messages import RUN, Attached, Call, Failure, Put, Run, Spec
from jitclient.wire.named_arrays import Holdings
from jitclient.wire.reply import Reply
from jitserver.daemon import plain_runs, runs
from jitserver.daemon.arrays.budget import ArrayBudget, MemoryBudget
from jitserver.daemon.connection import DaemonConnection
from jitserver.daemon.frame_budget import FrameBudget
from jitserver.daemon.sessions.run_order import Order
from jitserver.daemon.sessions.session import DaemonSession
from jitserver.programs.counters import Counters
from jitserver.programs.devices import device_arrays, memories
from jitserver.programs.engine import Engine
from jitserver.programs.exceptions import Failed
from jitserver.programs.program import CompiledProgram
from jitserver.store.disk import Store
from jitserver.store.journal import mark
from jitserver.store.memory import MemoryTier
from jitserver.store.tiers import Tiers
from jitserver.store.write_behind import Writer
from jitserver.system.shared_memory import BlockPool

F3 = Spec((3,), "float32")
WIDE = Spec((30_000,), "float32")
ONES = np.ones(3, np.float32).tobytes()


def program(run: Callable[..., Any], specs: Any, results: Any, **facts: Any) -> CompiledProgram:
    given = {"donated": (), "may_raise": False, "settings": (), **facts}
    return CompiledProgram(
        run=run,
        specs=tuple(specs),
        results=tuple(results),
        tree=b"",
        seconds={},
        code_bytes=0,
        **given,
    )


def fails(*_: Any) -> Any:
    raise ValueError("as it should")


def programs() -> list[CompiledProgram]:
    return [
        program(lambda x: [jnp.asarray(x) * 2], [F3], [F3]),
        program(lambda x, y: [x + y, jnp.asarray(x) - y], [F3, F3], [F3, F3]),
        program(fails, [F3], [F3, F3]),
        program(lambda x: [jnp.asarray(x).astype(jnp.bfloat16)], [F3], [Spec((3,), "bfloat16")]),
        program(lambda x: [jnp.zeros(30_000, jnp.float32) + x[0]], [F3], [WIDE]),
        program(
            lambda: [jnp.zeros((0, 2), jnp.int32), jnp.float32(7)], [], [Spec((0, 2), "int32"), Spec((), "float32")]
        ),
    ]


DOUBLE, BOTH, FAILS, HALF, LARGE, EMPTY_SLOT = range(6)

RUNS: dict[str, list[Run]] = {
    "by value": [Run([Call(DOUBLE, [ONES], 1)], fetch=(1,))],
    "by handle": [Run([Call(DOUBLE, [ONES], 1)]), Run([Call(BOTH, [1, ONES], 2)], fetch=(3, 2, 1))],
    "one of another": [Run([Call(DOUBLE, [ONES], 1), Call(DOUBLE, [1], 2), Call(BOTH, [1, 2], 3)], fetch=(4,))],
    "dropped before": [Run([Call(DOUBLE, [ONES], 1)]), Run([Call(DOUBLE, [ONES], 2, (1,))], fetch=(2,))],
    "dropped after": [Run([Call(DOUBLE, [ONES], 1)]), Run([Call(DOUBLE, [1], 2)], drop=(1,), fetch=(2, 1))],
    "a look": [Run([Call(DOUBLE, [ONES], 1)]), Run(fetch=(1,)), Run(fetch=(9,))],
    "what is not there": [Run([Call(BOTH, [7, ONES], 1), Call(DOUBLE, [1], 3), Call(DOUBLE, [ONES], 4)], fetch=(4, 1))],
    "what fails": [
        Run([Call(FAILS, [ONES], 1), Call(DOUBLE, [2], 3), Call(DOUBLE, [ONES], 4)]),
        Run([Call(DOUBLE, [3], 5)], fetch=(4, 5, 1)),
    ],
    "no buffer": [Run([Call(HALF, [ONES], 1)], fetch=(1,))],
    "beside the message": [Run([Call(LARGE, [ONES], 1), Call(DOUBLE, [ONES], 2)], fetch=(1, 2))],
    "no arguments": [Run([Call(EMPTY_SLOT, [], 1)], fetch=(1, 2))],
    "many looks": [Run([Call(DOUBLE, [ONES], n) for n in range(1, 71)], fetch=tuple(range(1, 71)))],
    "nothing": [Run()],
}


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(Counters(), Tiers(MemoryTier(1 << 40, 1 << 20), Store(Path(), 0), Writer(lambda: 0)))


def described(array: Any) -> Any:
    return array.dtype, None if array.is_deleted() else device_arrays.to_host(array).tobytes()


def limited(limit: int, holdings: Callable[[], Holdings]) -> ArrayBudget:
    return ArrayBudget({memories.default(): MemoryBudget(limit, holdings)})


class Daemon:
    """Answers the Runs of one session, and says all that came of it."""

    def __init__(
        self, engine: Engine, budget: ArrayBudget | None = None, made: list[CompiledProgram] | None = None
    ) -> None:
        self.service = SimpleNamespace(engine=engine, refuses_calls=False)
        self.session = DaemonSession(0, budget or ArrayBudget())
        self.order = Order()
        self.order.take_over(self)
        for number, each in enumerate(made or programs()):
            info = SimpleNamespace(key=str(number), label=f"program {number}")
            self.session.lease(SimpleNamespace(key=str(number), program=each, info=info, holders=set()))  # type: ignore[arg-type]
        self.number = 0

    def plainly(self, run: Run) -> tuple[Reply, list[bytes]] | None:
        self.number += 1
        run = msgspec.structs.replace(run, number=self.number)
        told = plain_runs.answer(self.service, self, self.session, self.order, run)
        return None if told is None else (told[0], [array.tobytes() for array in told[1]])

    def generally(self, run: Run, attached: Sequence[bytes] = ()) -> tuple[Reply, list[bytes]]:
        self.number += 1
        run = msgspec.structs.replace(run, number=self.number)
        left = iter(attached)

        def read(nbytes: int) -> HostArray:
            return np.frombuffer(next(left), np.uint8)

        channel: Any = SimpleNamespace(attachments_of=lambda block: read, skip=read, lent=None, call_client=None)
        assert self.order.begin(self, run.number)
        try:
            reply, attachments = runs.answer(self.service, self.session, run, channel)
        finally:
            self.order.active.end(self)
        return reply, [array.tobytes() for array in attachments]

    def state(self) -> Any:
        held = {
            handle: value.failure if isinstance(value, Failed) else described(value)
            for handle, value in self.session.arrays.items()
        }
        uses = [entry.program.calls for entry in self.session.leased()]
        assert self.session.makers.keys() <= self.session.arrays.keys()
        told = self.session.calls, self.session.budget.default.left, self.order.active.running
        return held, self.session.makers, uses, *told


@pytest.mark.parametrize("case", RUNS)
@pytest.mark.parametrize("most", [None, 40, 24], ids=["room", "little room", "hardly any"])
def test_the_answer_is_that_of_any_run(engine: Engine, case: str, most: int | None) -> None:
    def daemon() -> Daemon:
        made: list[Daemon] = []
        budget = limited(most, lambda: Holdings(made[0].session.array_bytes(), most, [], [])) if most else None
        made.append(Daemon(engine, budget))
        return made[0]

    plain, general = daemon(), daemon()
    before = engine.counters.calls
    for run in RUNS[case]:
        assert plain.plainly(run) == general.generally(run)
    assert plain.state() == general.state()
    made = sum(len(run.calls) for run in RUNS[case])
    assert engine.counters.calls - before >= 2 * made


def test_a_call_of_a_released_program_fails_alone_and_its_attachment_is_read(engine: Engine) -> None:
    daemon = Daemon(engine)
    daemon.session.release([DOUBLE])
    attached = Call(DOUBLE, [Attached(len(ONES))], 1)
    reply, _ = daemon.generally(Run([attached, Call(EMPTY_SLOT, [], 2)], fetch=(3,)), [ONES])
    [(handles, failure)] = reply.failures
    assert (handles, type(to_exception(failure))) == ([1], ProgramLost)
    assert reply.values == [np.float32(7).tobytes()]


def at_an_older_run(daemon: Daemon) -> None:
    """Let a client of the session reconnect while its Run of before is under way."""
    daemon.session.attached = 2
    order = daemon.session.order(b"another client")
    order.take_over("before")
    thread = threading.Thread(target=order.begin, args=("before", 1))
    thread.start()
    thread.join()
    order.take_over("now")


UNLIKE: dict[str, Any] = {
    "a put": lambda d: Run(puts=[Put(F3, ONES, 9)]),
    "a wait": lambda d: Run(wait=(1,)),
    "a block": lambda d: Run([Call(DOUBLE, [ONES], 1)], block=1),
    "a block to fill": lambda d: Run(fetch=(1,), into=1),
    "too many arguments": lambda d: Run([Call(DOUBLE, [ONES, ONES], 1)]),
    "too few bytes": lambda d: Run([Call(DOUBLE, [ONES[:-1]], 1)]),
    "bytes that follow": lambda d: Run([Call(DOUBLE, [Attached(12)], 1)]),
    "no such program": lambda d: Run([Call(99, [ONES], 1)]),
    "a program below zero": lambda d: Run([Call(-1, [], 1)]),
    "a program of before": lambda d: d.session.executables.append("key") or Run([Call(6, [ONES], 1)]),
    "the second call": lambda d: Run([Call(DOUBLE, [ONES], 1), Call(DOUBLE, [ONES, ONES], 2)]),
    "no new calls": lambda d: setattr(d.service, "refuses_calls", True) or Run([Call(DOUBLE, [ONES], 1)]),
    "a Run of a connection before": lambda d: at_an_older_run(d) or Run([Call(DOUBLE, [ONES], 1)]),
    "handles to drop": lambda d: d.session.pending_drops.add(5) or Run([Call(DOUBLE, [ONES], 1)]),
    "an end": lambda d: d.session.end() or Run([Call(DOUBLE, [ONES], 1)]),
    "another carrier": lambda d: (d.order.take_over(object()) and None) or Run([Call(DOUBLE, [ONES], 1)]),
    "a freeze": lambda d: (d.order.freeze() and None) or Run([Call(DOUBLE, [ONES], 1)]),
    "a suspect": lambda d: (
        setattr(d.session.executables[0].program, "suspect", "key") or Run([Call(DOUBLE, [ONES], 1)])
    ),
}


@pytest.mark.parametrize("case", UNLIKE)
def test_what_is_unlike_is_left_alone(engine: Engine, case: str) -> None:
    daemon = Daemon(engine)
    run = UNLIKE[case](daemon)
    before = daemon.state(), daemon.order.freeze(), engine.counters.calls
    daemon.order._frozen = case == "a freeze"
    assert daemon.plainly(run) is None
    assert (daemon.state(), daemon.order.freeze(), engine.counters.calls) == before


@pytest.mark.parametrize(
    "facts",
    [
        {"donated": (0,)},
        {"may_raise": True},
        {"settings": (("jax_enable_x64", True),)},
        {"suspect": "key"},
        {"specs": [Spec((3,), "float64")]},
        {"specs": [Spec((), "key<fry>")]},
        {"results": [Spec((3,), "int64")]},
        {"results": [Spec((3,), "float0")]},
    ],
    ids=str,
)
def test_programs_that_are_unlike(facts: dict[str, Any]) -> None:
    plain = program(lambda x: [x], [F3], [F3])
    assert plain.plain == (((3,), np.dtype("float32"), 12),)
    assert program(lambda x: [x], **{"specs": [F3], "results": [F3], **facts}).plain is None


def test_a_program_that_rests_is_woken(engine: Engine) -> None:
    daemon = Daemon(engine)
    entry: Any = daemon.session.executables[DOUBLE]
    again = dataclasses.replace(entry.program)
    entry.program.unload(lambda: again)
    told = daemon.plainly(Run([Call(DOUBLE, [ONES], 1)], fetch=(1,)))
    assert told is not None
    assert told[0].values == [np.full(3, 2, np.float32).tobytes()]


@pytest.fixture
def compiled() -> Any:
    return jax.jit(lambda x: [x * 2]).lower(jnp.ones(3, jnp.float32)).compile()


def test_a_program_is_called_directly_once_it_has_run(
    engine: Engine, compiled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon, calls, way = Daemon(engine, made=[program(compiled, [F3], [F3])]), list[Any](), type(compiled).__call__
    monkeypatch.setattr(type(compiled), "__call__", lambda self, *leaves: calls.append(leaves) or way(self, *leaves))
    first = daemon.plainly(Run([Call(0, [ONES], 1)], fetch=(1,)))
    then = daemon.plainly(Run([Call(0, [1], 2), Call(0, [ONES], 3)], fetch=(2, 3)))
    assert len(calls) == 1
    two, four = np.full(3, 2, np.float32).tobytes(), np.full(3, 4, np.float32).tobytes()
    assert [told[0].values for told in (first, then) if told] == [
        [two],
        [four, two],
    ]


def test_but_for_one_that_rests_by_now(engine: Engine, compiled: Any) -> None:
    daemon = Daemon(engine, made=[program(compiled, [F3], [F3])])
    made = daemon.session.executable(0).program
    daemon.plainly(Run([Call(0, [ONES], 1)]))
    assert made.direct is not None
    woken: list[int] = []
    again = program(lambda x: [woken.append(1) or jnp.asarray(x)], [F3], [F3])
    made.unload(lambda: again)
    for _ in range(2):
        told = daemon.plainly(Run([Call(0, [ONES], 2)], fetch=(2,)))
        assert told is not None
        assert told[0].values == [ONES]
    assert woken == [1, 1]


@pytest.mark.parametrize("other", [None, lambda *leaves: None], ids=["nothing", "something else"])
def test_nor_where_jax_has_something_else_under_that_name(engine: Engine, compiled: Any, other: Any) -> None:
    made = program(compiled, [F3], [F3])
    compiled._call = other
    made.set_direct()
    assert made.direct is None


def test_who_waits_for_a_run_of_before_is_told(engine: Engine) -> None:
    waited: list[int] = []
    daemon = Daemon(
        engine, made=[program(lambda x: [waited.append(daemon.order.active.waiting) or jnp.asarray(x)], [F3], [F3])]
    )
    daemon.order.active.waiting = 1
    told: list[int] = []
    daemon.order.active.notify = lambda: told.append(1)  # type: ignore[method-assign]
    assert daemon.plainly(Run([Call(0, [ONES], 1)])) is not None
    assert (waited, told, daemon.order.active.running) == ([1], [1], {})


@pytest.mark.parametrize("raises", [False, True])
def test_the_journal_knows_what_runs(engine: Engine, raises: bool) -> None:
    slot, seen = engine.journal.thread_state.slot, list[bytes]()

    def run(x: Any) -> Any:
        seen.append(bytes(slot))
        return fails() if raises else [jnp.asarray(x)]

    made = program(run, [F3], [F3])
    made.mark = mark("running", "key", "label")
    assert Daemon(engine, made=[made]).plainly(Run([Call(0, [ONES], 1)])) is not None
    assert seen == [made.mark]
    assert slot[0] == 0
    assert 0 < made.last_call <= time.monotonic()
    assert made.call_seconds > 0


def test_the_slowest_call_counts_but_for_the_first(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(plain_runs, "monotonic", lambda: now[0])
    seconds = iter([9.0, 1.0, 3.0, 2.0])

    def run(x: Any) -> Any:
        now[0] += next(seconds)
        return [jnp.asarray(x)]

    made = program(run, [F3], [F3])
    daemon = Daemon(engine, made=[made])
    assert daemon.plainly(Run([Call(0, [ONES], 1)])) is not None
    assert made.slowest == 0
    assert daemon.plainly(Run([Call(0, [ONES], n) for n in (2, 3, 4)])) is not None
    assert made.slowest == 3


def test_a_session_that_was_connected_before_is_answered_likewise(engine: Engine) -> None:
    daemon = Daemon(engine)
    daemon.session.attached = 2
    assert daemon.plainly(Run([Call(DOUBLE, [ONES], 1)], fetch=(1,))) is not None


def test_a_session_that_is_saved_meanwhile_is_left_as_it_was(engine: Engine) -> None:
    left: list[dict[int, Any]] = []

    def run(x: Any) -> Any:
        left.append(daemon.session.hand_over()[1])
        return [jnp.asarray(x)]

    daemon = Daemon(engine, made=[program(lambda x: [jnp.asarray(x)], [F3], [F3]), program(run, [F3], [F3])])
    assert daemon.plainly(Run([Call(0, [ONES], 1)])) is not None
    assert daemon.plainly(Run([Call(1, [ONES], 2)], drop=(1,))) is not None
    assert list(left[0]) == [1]


def test_what_was_dropped_is_free_before_the_next_call(engine: Engine) -> None:
    made: list[weakref.ref[Any]] = []
    alive: list[int] = []

    def run(x: Any) -> Any:
        alive.append(sum(each() is not None for each in made))
        result = x + 1
        made.append(weakref.ref(result))
        return [result]

    daemon = Daemon(engine, made=[program(run, [F3], [F3])])
    steps = [Call(0, [ONES], n, (n - 1,)) for n in range(1, 6)]
    assert daemon.plainly(Run(steps)) is not None
    assert alive == [0, 0, 0, 0, 0]


def test_what_nobody_wants_is_freed_at_the_end(engine: Engine) -> None:
    def run(x: Any) -> Any:
        daemon.session.pending_drops.add(1)  # as another connection of the client does
        return [jnp.asarray(x)]

    daemon = Daemon(engine, made=[program(run, [F3], [F3])])
    assert daemon.plainly(Run([Call(0, [ONES], 1)])) is not None
    assert daemon.session.arrays == {}
    assert daemon.session.pending_drops == set()


def test_a_connection_is_busy_until_its_answer_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[bool] = []
    ours, theirs = socket.socketpair()
    large = np.zeros(1 << 20, np.uint8)
    monkeypatch.setattr(plain_runs, "answer", lambda *_: (Reply(1), [large]))
    connection = DaemonConnection(Service(), theirs, 0, BlockPool(0), FrameBudget())
    connection.session, connection.order = DaemonSession(0, ArrayBudget()), Order()
    channel = connection._channel
    connection._channel = SimpleNamespace(  # type: ignore[assignment]
        recv_at_once=channel.recv_at_once,
        recv=channel.recv,
        close=channel.close,
        send=lambda message, arrays: sent.append(connection.busy_since is not None),
    )
    frame = bytes((RUN,)) + msgspec.msgpack.encode(Run(number=1))
    ours.sendall(len(frame).to_bytes(4, "little") + frame)
    ours.close()
    connection.serve_all()
    assert sent == [True]
    assert connection.busy_since is None


# ---- any Runs

NAMED = 1000  # handles of named arrays, one of each form
VALUES = {
    F3: np.float32([1, 2, 3]),
    Spec((), "int32"): np.int32(5),
    Spec((0, 2), "int32"): np.zeros((0, 2), np.int32),
    Spec((3,), "bfloat16"): jnp.bfloat16([1, 2, 3]),
    Spec((2,), "bool"): np.array([True, False]),
    Spec((3,), "float64"): np.float64([1, 2, 3]),
    Spec((), "key<fry>"): np.uint32([1, 2]),
    WIDE: np.arange(30_000, dtype=np.float32),
}
FORMS = list(VALUES)


def compiled_program(
    run: Callable[..., Any], specs: Sequence[Spec], results: Sequence[Spec], **facts: Any
) -> CompiledProgram:
    with jax.enable_x64(True):
        made = jax.jit(run, donate_argnums=facts.get("donated", ())).lower(*map(abstract, specs)).compile()
    return program(made, specs, results, **facts)


def any_programs() -> list[CompiledProgram]:
    """One program for each form of its argument, then some that fail, donate, make several results, or are special."""
    return [
        *(compiled_program(lambda x: [x], [form], [form]) for form in FORMS),
        program(fails, [F3], [F3, F3]),
        compiled_program(lambda x, y: [x + y, x[:2] > y[:2]], [F3, F3], [F3, Spec((2,), "bool")]),
        compiled_program(lambda x, y: [x + y, y], [F3, F3], [F3, F3], donated=(0,)),
        compiled_program(lambda x: [x / x], [F3], [F3], settings=(("jax_debug_nans", True),)),
        compiled_program(lambda x: [x * 2], [F3], [F3], may_raise=True),
        compiled_program(lambda x: [jnp.broadcast_to(x[0], 30_000)], [F3], [WIDE]),
        compiled_program(lambda: [jnp.int32(7)], [], [Spec((), "int32")]),
    ]


def any_call(random: Random, made: list[CompiledProgram]) -> tuple[Call, list[bytes]]:
    """A call, mostly with fitting arguments, and the bytes that are attached to it."""
    number = random.randrange(len(made))
    forms = list(made[number].specs)
    if rarely(random):
        forms = random.choice([forms[1:], [*forms, F3]])
    arguments, attached = list[int | bytes | Attached](), list[bytes]()
    for form in forms:
        sent = random.choice(FORMS) if rarely(random) else form
        data = np.asarray(VALUES[sent]).tobytes()
        if random.random() < 0.5:
            arguments.append(any_handle(random) if random.random() < 0.3 else NAMED + FORMS.index(sent))
        elif len(data) < 1000 and not rarely(random):
            arguments.append(data)
        else:
            arguments.append(Attached(len(data)))
            attached.append(data)
    return Call(number, arguments, random.randint(1, 6), any_handles(random, 1)), attached


def any_run(random: Random, made: list[CompiledProgram]) -> tuple[Run, list[bytes]]:
    pairs = [any_call(random, made) for _ in range(random.randint(0, 3))]
    run = Run(
        [call for call, _ in pairs],
        any_handles(random, 1),
        [Put(F3, ONES, 9)] if rarely(random) else [],
        any_handles(random, 1) if rarely(random) else (),
        any_handles(random, 4),
    )
    return run, [data for _, attached in pairs for data in attached]


def rarely(random: Random) -> bool:
    return random.random() < 0.05


def any_handle(random: Random) -> int:
    return random.choice([*range(1, 7), NAMED + random.randrange(len(FORMS)), 99])


def any_handles(random: Random, most: int) -> tuple[int, ...]:
    return tuple(any_handle(random) for _ in range(random.randint(0, most)))


def outcome(answer: Callable[[], Any]) -> Any:
    try:
        return answer()
    except ProtocolError as error:  # the connection is closed
        return str(error)


@pytest.mark.slow
@pytest.mark.parametrize("most", [None, 600_000, 100], ids=["room", "little room", "hardly any"])
def test_plain_runs_are_answered_as_any_runs(engine: Engine, most: int | None) -> None:
    import hypothesis.strategies as st  # where it is loaded, each collection reads all of our modules for constants
    from hypothesis import HealthCheck, Phase, given, settings

    made = any_programs()
    seen: collections.Counter[str] = collections.Counter()

    def daemon() -> Daemon:
        ours: list[Daemon] = []
        budget = limited(most, lambda: Holdings(ours[0].session.array_bytes(), most, [], [])) if most else None
        ours.append(Daemon(engine, budget, [dataclasses.replace(each) for each in made]))
        arrays = [device_arrays.put(np.asarray(value).tobytes(), form) for form, value in VALUES.items()]
        for array in arrays:
            engine.share(array)
        ours[0].session.keep(NAMED, arrays)
        return ours[0]

    @settings(
        deadline=None,
        derandomize=True,
        max_examples=60,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(st.randoms(use_true_random=True))
    def check(random: Random) -> None:
        plain, general = daemon(), daemon()
        for _ in range(6):
            run, attached = any_run(random, made)
            plain.service.refuses_calls = general.service.refuses_calls = rarely(random)
            found: Any = plain.plainly(run)
            seen["special" if found is None else "plain"] += 1
            if found is None:
                plain.number -= 1
                found = outcome(lambda: plain.generally(run, attached))  # noqa: B023
            else:
                seen["calls"] += len(run.calls)
                seen["failures"] += len(found[0].failures)
                seen["values"] += sum(not isinstance(value, Failure) for value in found[0].values)
            assert found == outcome(lambda: general.generally(run, attached))  # noqa: B023
            assert plain.state() == general.state()
            if isinstance(found, str):
                break

    check()
    assert min(seen[kind] for kind in ("special", "plain", "calls", "failures", "values")) > 20, seen
