"""A session and daemons in one thread, without sockets: connections break and daemons restart at any step.

The session is the client's own, with an `Outbox` of calls. What a daemon notes of a session is its own, too: the order
of Runs, and the arrays by handle. Only the network between them and the programs are simulated.
"""

import collections
import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from jitclient.core.settings import Settings
from jitclient.errors import ArrayLost, DaemonLost, DaemonUnavailable, NotSent
from jitclient.session.handshake import ClientId, Reached
from jitclient.session.outbox import Drops
from jitclient.session.retry import ATTEMPTS, with_retries
from jitclient.session.session import Session
from jitclient.wire.messages import PROTOCOL, RUN, Attached, Call, Run, Welcome
from jitclient.wire.reply import Reply
from jitserver.daemon.arrays.budget import ArrayBudget
from jitserver.daemon.sessions.run_order import Order
from jitserver.daemon.sessions.session import DaemonSession

_decode = msgspec.msgpack.Decoder(Run).decode


class Connection:
    """The client's end of a connection, and what is on its way."""

    phase = ""

    def __init__(self, network: "Network", session: DaemonSession, order: Order) -> None:
        self.session, self.order = session, order
        self.sent: collections.deque[tuple[Run, list[int]]] = collections.deque()
        self.is_broken = False
        self.read_attachment = None
        self._network = network
        self._replies: collections.deque[Reply] = collections.deque()

    def send_frame(self, kind: int, body: bytes, attachments: Sequence[Any] = ()) -> None:
        assert kind == RUN
        self._network.may_fail(self, NotSent)
        self.sent.append((_decode(body), [int(array[0]) for array in attachments]))
        self._network.may_interrupt()

    def reply(self, run: bytes = b"") -> Reply:
        if run:
            self.send_frame(RUN, run)
        assert self.sent or self._replies or self.is_broken, "this would wait for ever"
        while not self._replies:
            self._network.may_fail(self, DaemonLost)
            self.serve()
        self._network.may_fail(self, DaemonLost)
        return self._replies.popleft()

    def reply_if_ready(self) -> Reply | None:
        self._network.may_fail(self, DaemonLost)
        return self._replies.popleft() if self._replies else None

    def close(self) -> None:
        self.is_broken = True

    def serve(self) -> None:
        """Lets the daemon do the next Run, also one that arrived before the connection broke."""
        if self.sent:
            run, attached = self.sent.popleft()
            if not self.order.begin(self, run.number):
                self.is_broken = True
                self.sent.clear()
                return
            try:
                self._replies.append(self._network.done(self.session, run, attached))
            finally:
                self.order.active.end(self)
                self.session.free_pending_drops()


class Network:
    """Daemons that follow one another, and connections that break."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.fault_share = 0.0
        self.connections: list[Connection] = []
        self.sessions: dict[bytes, DaemonSession] = {}
        self.executed: set[tuple[bytes, int]] = set()
        """The calls that were made, by session and first result."""
        self._process = b"0"

    # ---- what fails

    def may_fail(self, connection: Connection, kind: type[DaemonLost]) -> None:
        if self.random.random() < self.fault_share:
            connection.is_broken = True
        if connection.is_broken:
            raise kind("the connection broke")
        self.may_interrupt()

    def may_interrupt(self) -> None:
        if self.random.random() < self.fault_share / 4:
            raise KeyboardInterrupt

    def break_all(self) -> None:
        for connection in self.connections:
            connection.is_broken = True

    def restart(self, *, keep: bool) -> None:
        """Replaces the daemon by one that has the sessions of the previous one, or none."""
        self.break_all()
        self._process += b"'"
        for old in self.sessions.values():
            old.freeze()
        before, self.sessions = self.sessions, {}
        if keep:
            for token, old in before.items():
                state, arrays = old.hand_over()
                new = DaemonSession.restored(state, None, lambda key: None, ArrayBudget())  # type: ignore[arg-type]
                new.arrays.update(arrays)
                self.sessions[token] = new

    # ---- the daemon

    def reach(self, identity: ClientId) -> Reached:
        if self.random.random() < self.fault_share:
            raise DaemonUnavailable("there is none at the moment")
        resumed = self.sessions.get(identity.token)
        session = resumed or DaemonSession(os.getpid(), ArrayBudget())
        self.sessions[session.token] = session
        order, first = session.order(identity.client), session.attach(os.getpid())
        assert first is not None
        connection = Connection(self, session, order)
        self.connections.append(connection)
        begun, _ = order.take_over(connection)
        welcome = Welcome(
            PROTOCOL, "", "", {}, "cpu", 0, session.token, resumed is not None, first, begun, process=self._process
        )
        return Reached(connection, None, welcome)  # type: ignore[arg-type]

    def done(self, session: DaemonSession, run: Run, attached: list[int]) -> Reply:
        """Makes the calls of a Run: each adds one to the sum of its arguments."""
        for call in run.calls:
            session.forget(call.drop)
            made = session.token, call.results
            assert made not in self.executed, f"call {made} was made twice"
            own = {each for token, each in self.executed if token == session.token and each >> 40 == call.results >> 40}
            assert all(handle < call.results for handle in own)
            self.executed.add(made)
            session.keep(call.results, [1 + sum(self._value(session, each, attached) for each in call.arguments)])
        session.forget(run.drop)
        return Reply(run.number, values=[b"%d" % session.array(handle) for handle in run.fetch])

    def _value(self, session: DaemonSession, argument: Any, attached: list[int]) -> int:
        if type(argument) is int:
            return session.array(argument)  # type: ignore[no-any-return]
        return attached.pop(0) if type(argument) is Attached else int(argument)


class Program:
    """A program that calls, drops and looks, and knows what it must find."""

    def __init__(self, random: Random) -> None:
        self.random, self.network = random, Network(random)
        self.session = session = Session(Settings(address="unix:/nowhere"))
        session._finder = SimpleNamespace(reach=self.network.reach)  # type: ignore[assignment]
        session.background = SimpleNamespace(awake=True, wake=lambda: None, rest=lambda: None)  # type: ignore[assignment]
        self.values: dict[int, int] = {}
        """The arrays that the program holds."""
        self.queued: set[int] = set()
        """Results of calls that must be made, sooner or later."""
        self.refused: set[int] = set()
        """Results of calls that no daemon may make."""
        self.unknown: set[int] = set()
        """Results of calls that were interrupted, or lost on the way."""
        self._generation, self._drops = session.generation, session.drops
        self._former: list[tuple[Drops, list[int]]] = []

    def take_note(self) -> None:
        """Forgets what was lost with its daemon."""
        if self.session.generation != self._generation:
            self._former.append((self._drops, list(self.values)))
            self._generation, self._drops = self.session.generation, self.session.drops
            for handles in (self.values, self.queued, self.refused, self.unknown):
                handles.clear()

    @contextlib.contextmanager
    def with_faults(self) -> Iterator[None]:
        try:
            with contextlib.suppress(DaemonLost, DaemonUnavailable, ArrayLost, KeyboardInterrupt):
                yield
        finally:
            self.take_note()

    def arguments(self) -> tuple[list[int], int]:
        handles = self.random.sample(sorted(self.values), min(len(self.values), self.random.randint(0, 2)))
        return handles, 1 + sum(map(self.values.__getitem__, handles))

    def call_later(self) -> None:
        session = self.session
        with self.with_faults(), session:
            self.take_note()
            arguments, value = self.arguments()
            large = np.full(1, self.random.randrange(100))
            attachments = [large] if self.random.random() < 0.2 else []
            value += sum(int(each[0]) for each in attachments)
            first = session.new_handles(1)
            self.unknown.add(first)
            sent = [*arguments, *(Attached(each.nbytes) for each in attachments)]
            session.call_later(0, sent, first, attachments, session.program_generation)
            self.unknown.discard(first)
            self.queued.add(first)
            self.values[first] = value
            large[0] = -1  # what it was called with is what counts

    def call_now(self) -> None:
        session = self.session
        with self.with_faults(), session:
            self.take_note()
            arguments, value = self.arguments()
            first = session.new_handles(1)
            run = Run([Call(0, list(arguments), first)], fetch=(first,))
            self.unknown.add(first)
            try:
                reply, _ = session.run(run, program_generation=session.program_generation)
            except NotSent:
                self.unknown.discard(first)
                self.refused.add(first)
                raise
            self.unknown.discard(first)
            assert reply.values == [b"%d" % value]
            self.values[first] = value

    def call_beside(self) -> None:
        """Calls as a callback does, while the session waits for an answer."""
        with self.with_faults(), self.session as session:
            self.take_note()
            session._drain()  # as before each exchange that yields
            with session.yielded():
                # A queued call is lost if there is no daemon at the end.
                if not self.network.fault_share:
                    self.call_later()
                self.call_now()

    def look(self, *handles: int) -> None:
        session, generation = self.session, self._generation
        wanted = handles or tuple(self.random.sample(sorted(self.values), min(len(self.values), 2)))
        expected = [b"%d" % self.values[handle] for handle in wanted]
        with self.with_faults():
            ask: Callable[[], Any] = lambda: session.run(Run(fetch=wanted), generation=generation)
            reply, _ = with_retries(session, ask, ATTEMPTS)
            assert reply.values == expected

    def drop(self) -> None:
        for handle in self.random.sample(sorted(self.values), len(self.values) // 2):
            del self.values[handle]
            self.session.drops.append(handle)
        for drops, handles in self._former:  # which now are those of others
            drops.extend(handles)
        self._former.clear()

    def ask_whether_done(self) -> None:
        for handle in self.random.sample(sorted(self.values), min(len(self.values), 1)):
            with self.with_faults():
                self.session.is_answered(handle)

    def pause(self) -> None:
        for _ in range(2):
            with self.with_faults():
                self.session._tidy()

    def disconnect(self) -> None:
        self.session.disconnect()

    def deliver_late(self) -> None:
        """Lets daemons do what has arrived, on any connection, also those that another daemon has followed."""
        for connection in self.random.sample(self.network.connections, min(len(self.network.connections), 3)):
            # An interrupted call beside another one, whose arguments were dropped since, fails, unread.
            with contextlib.suppress(ArrayLost):
                connection.serve()

    def restart(self) -> None:
        self.network.restart(keep=self.random.random() < 0.7)

    def check(self) -> None:
        """Check that each request was carried out once, and that dropped arrays are gone."""
        self.network.fault_share = 0
        with self.session:
            self.take_note()
            self.look(*self.values)
            self.session._drain()
        self.pause()
        [daemon] = [each for each in self.network.sessions.values() if each.token == self.session._identity.token]
        made = {handle for token, handle in self.network.executed if token == daemon.token}
        assert self.queued <= made
        assert not self.refused & made
        assert self.values.keys() <= daemon.arrays.keys() <= self.values.keys() | self.unknown
        assert not daemon.pending_drops


STEPS = {
    Program.call_later: 8,
    Program.call_now: 3,
    Program.call_beside: 2,
    Program.look: 3,
    Program.drop: 2,
    Program.ask_whether_done: 1,
    Program.pause: 2,
    Program.deliver_late: 2,
    Program.disconnect: 1,
    Program.restart: 1,
}


@pytest.mark.parametrize("fault_share", [0.0, 0.02, 0.1])
def test_whatever_breaks_calls_are_made_once_and_what_is_dropped_is_gone(fault_share: float) -> None:
    for seed in range(150):
        random = Random(seed)
        program = Program(random)
        program.network.fault_share = fault_share
        try:
            for step in random.choices(list(STEPS), list(STEPS.values()), k=60):
                step(program)
            program.check()
        except BaseException as error:
            error.add_note(f"with the seed {seed}")
            raise


def test_callbacks_use_the_connections_of_earlier_ones() -> None:
    program = Program(Random(0))
    session, connections = program.session, program.network.connections
    for _ in range(20):
        program.call_beside()
    assert len(connections) == 2
    for _ in range(20):
        with session, session.yielded():
            program.call_beside()
    assert len(connections) == 3
    [daemon] = program.network.sessions.values()
    assert (len(daemon._orders), daemon.active.running) == (3, {})
    program.network.restart(keep=True)
    for _ in range(20):
        program.call_beside()
    assert len(connections) == 3 + 1
    with session:
        session.close_spares()
    assert connections[-1].is_broken
    program.check()


def test_what_a_lost_run_was_to_drop_is_dropped_though_the_next_connection_breaks_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hangs_up(*_: Any) -> None:
        raise NotSent("the connection broke")

    with Program(Random(0)).session as session:
        session._pipeline.outbox.enter(Run(), may_resend=True)
        session._pipeline.outbox.enter(Run(drop=(7,)), may_resend=False)
        session.disconnect()
        monkeypatch.setattr(Connection, "send_frame", hangs_up)
        with pytest.raises(NotSent):
            session.connect()
        assert list(session.drops) == [7]
