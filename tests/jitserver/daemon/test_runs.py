"""Results in the block of the arguments: only if nothing on the daemon reads it any more."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jitclient.wire.array_transport import HostArray
from jitclient.wire.messages import Attached, Call, Put, Run, Spec
from jitclient.wire.named_arrays import Holdings
from jitclient.wire.reply import Reply
from jitclient.wire.shared_memory import received
from jitserver.daemon import runs
from jitserver.daemon.arrays.budget import ArrayBudget, MemoryBudget
from jitserver.daemon.run_channel import RunChannel
from jitserver.daemon.sessions.session import DaemonSession
from jitserver.programs.counters import Counters
from jitserver.programs.devices import device_arrays
from jitserver.programs.devices.heartbeat import Health
from jitserver.programs.devices.memories import LEAST_BYTES, default
from jitserver.programs.engine import Engine
from jitserver.programs.program import CompiledProgram
from jitserver.store.disk import Store
from jitserver.store.memory import MemoryTier
from jitserver.store.tiers import Tiers
from jitserver.store.write_behind import Writer
from jitserver.system.shared_memory import BlockPool, Lent


def engine() -> Any:
    return SimpleNamespace(put=device_arrays.put, health=Health())


def test_a_negative_size_adds_nothing_to_the_budget() -> None:
    budget = MemoryBudget(LEAST_BYTES, lambda: Holdings(0, LEAST_BYTES, [], []))
    session, done = DaemonSession(0, ArrayBudget({default(): budget})), Reply(1)
    runs._put(engine(), session, Put(Spec((-10_000,), "float32"), b"", 7), b"", done, None)
    assert [handles for handles, _ in done.failures] == [[7]]
    assert budget.left <= LEAST_BYTES


def test_arrays_are_counted_once_for_a_run_that_puts_more_than_there_is_room_for() -> None:
    counts = []

    def count() -> Holdings:
        counts.append(1)
        return Holdings(2 * LEAST_BYTES, 2 * LEAST_BYTES, [], [])

    session = DaemonSession(0, ArrayBudget({default(): MemoryBudget(2 * LEAST_BYTES, count)}))
    service: Any = SimpleNamespace(engine=SimpleNamespace(**vars(engine()), counters=Counters()), refuses_calls=False)
    puts = [Put(Spec((), "float32"), bytes(4), handle) for handle in range(100)]
    channel = RunChannel(None, Lent(BlockPool(0)), print)  # type: ignore[arg-type]
    reply, _ = runs.answer(service, session, Run(puts=puts, number=1), channel)
    assert [handles for handles, _ in reply.failures] == [list(range(2, 100))]
    assert len(counts) == 1


N = 30_000
SPEC = Spec((N,), "float32")


@pytest.mark.parametrize("is_kept", [False, True])
def test_results_use_the_block_of_the_arguments_unless_something_reads_it(is_kept: bool) -> None:
    kept: list[Any] = []

    def run(x: HostArray) -> Any:
        if is_kept:
            kept.append(x)
        return [jnp.asarray(x.copy()) + 1]

    program = CompiledProgram(
        run=run,
        specs=(SPEC,),
        results=(SPEC,),
        tree=b"",
        donated=(),
        may_raise=False,
        settings=(),
        seconds={},
        code_bytes=0,
    )
    session, lent = DaemonSession(0, ArrayBudget()), Lent(BlockPool(1 << 20))
    session.executables.append(SimpleNamespace(program=program, holders=set()))  # type: ignore[arg-type]
    leased, fd = lent.lease(4 * N)
    assert fd is not None
    block = received(leased.block, leased.capacity, fd)
    at_client = block.writable()[: 4 * N].view(np.float32)
    at_client[:] = 5
    run_message = Run([Call(0, [Attached(4 * N)], 1)], fetch=(1,), block=leased.block)
    engine = Engine(Counters(), Tiers(MemoryTier(1 << 40, 1 << 20), Store(Path(), 0), Writer(lambda: 0)))

    service = SimpleNamespace(engine=engine, refuses_calls=False)

    reply, attachments = runs.answer(service, session, run_message, RunChannel(None, lent, print))  # type: ignore[arg-type]

    assert reply.returns_block == reply.shared == (not is_kept)
    assert at_client.min() == at_client.max() == (5 if is_kept else 6)
    assert [float(value[0]) for value in attachments] == ([6] if is_kept else [])
    assert [float(value[0]) for value in kept] == ([5] if is_kept else [])
