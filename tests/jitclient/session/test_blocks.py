"""The client's side of shared memory, against the daemon's own: whose turn it is, through all that can happen to it."""

import gc
import itertools
from typing import Any

import numpy as np
import pytest

from jitclient.session import blocks as client
from jitclient.session.blocks import Blocks
from jitclient.wire.messages import Return, Run, Spec
from jitclient.wire.reply import Reply
from jitclient.wire.shared_memory import MAX_LENT_BLOCKS, Block, received
from jitserver.system.shared_memory import BlockPool, Lent

N = 1 << 16
SPEC = Spec((N,), "float32")


class Daemon:
    """The methods of a connection, without one; runs programs that add one."""

    def __init__(self, max_bytes: int = 1 << 30) -> None:
        self.pool = BlockPool(max_bytes)
        self.lent = Lent(self.pool)
        self.resident: list[Any] = []

    def lease(self, nbytes: int) -> Block | None:
        leased, fd = self.lent.lease(nbytes)
        return received(leased.block, leased.capacity, fd) if fd is not None else None

    def return_blocks(self, message: Return) -> None:
        self.lent.take_back(message)

    def answer(self, message: Run, keep: bool = False) -> Reply:
        done = Reply(0)
        if message.block:
            raw = self.lent.arguments(message.block)(4 * N)
            values = [raw.view(np.float32) + 1]
            if keep:
                self.resident.append(raw)
            del raw
            done.returns_block = self.lent.release_arguments(message.block)
        into = message.into or (message.block if done.returns_block else 0)
        if into:
            done.shared = self.lent.fill(into, values if message.block else [np.zeros(N, np.float32)])
        return done


@pytest.fixture
def daemon() -> Daemon:
    return Daemon()


@pytest.fixture
def blocks(daemon: Daemon) -> Blocks:
    return Blocks(daemon, lambda: None)


def call(blocks: Blocks, daemon: Daemon, value: float, **how: bool) -> Any:
    message = Run()
    assert blocks.load(message, [np.full(N, value, np.float32)]) == ()
    blocks.lend_for_results(message, [SPEC])
    read = blocks.reclaim(message, daemon.answer(message, **how))
    assert read is not None
    return read(4 * N).view(np.float32)


def test_two_blocks_serve_any_number_of_calls(blocks: Blocks, daemon: Daemon) -> None:
    for n in range(10):
        assert call(blocks, daemon, n)[5] == n + 1
    assert daemon.pool.count == 2


def test_what_the_program_reads_is_not_written(blocks: Blocks, daemon: Daemon) -> None:
    results = [call(blocks, daemon, n)[3:7] for n in range(5)]
    assert [float(result[0]) for result in results] == [1, 2, 3, 4, 5]
    count = daemon.pool.count
    del results
    for n in range(5):
        call(blocks, daemon, n)
    assert daemon.pool.count == count


def test_what_the_daemon_keeps_is_not_written(blocks: Blocks, daemon: Daemon) -> None:
    for n in range(5):
        call(blocks, daemon, n, keep=True)
    assert [float(raw.view(np.float32)[0]) for raw in daemon.resident] == [0, 1, 2, 3, 4]


def call_unasked(blocks: Blocks, daemon: Daemon, value: float, **how: bool) -> Any:
    message = Run()
    assert blocks.load(message, [np.full(N, value, np.float32)]) == ()
    read = blocks.reclaim(message, daemon.answer(message, **how))
    return None if read is None else read(4 * N).view(np.float32)


def test_results_may_come_in_the_block_of_the_arguments(blocks: Blocks, daemon: Daemon) -> None:
    for n in range(10):
        assert call_unasked(blocks, daemon, n)[5] == n + 1
    assert daemon.pool.count == 1
    held = [call_unasked(blocks, daemon, n) for n in range(5)]
    assert [float(result[0]) for result in held] == [1, 2, 3, 4, 5]
    assert daemon.pool.count == 5


def test_but_not_where_the_daemon_keeps_that_block(blocks: Blocks, daemon: Daemon) -> None:
    assert call_unasked(blocks, daemon, 1, keep=True) is None
    assert call_unasked(blocks, daemon, 2)[0] == 3
    assert daemon.resident[0].view(np.float32)[0] == 1


def test_an_offer_that_is_not_used_is_free_again(blocks: Blocks, daemon: Daemon) -> None:
    for _ in range(3):
        message = Run()
        blocks.lend_for_results(message, [SPEC])
        assert blocks.reclaim(message, Reply(0)) is None
    assert daemon.pool.count == 1


def test_small_values_need_no_offer(blocks: Blocks, daemon: Daemon) -> None:
    message = Run()
    blocks.lend_for_results(message, [Spec((10,), "float32")])
    assert message.into == 0
    assert daemon.pool.count == 0


@pytest.mark.parametrize("most", [0, 1 << 16])
def test_what_the_daemon_cannot_lend_follows_the_frame(most: int) -> None:
    blocks, message = Blocks(Daemon(most), lambda: None), Run()
    attachments = [np.zeros(N, np.float32)]
    assert blocks.load(message, attachments) is attachments
    blocks.lend_for_results(message, [SPEC])
    assert (message.block, message.into) == (0, 0)


def test_who_holds_very_many_results_gets_them_over_the_socket(blocks: Blocks, daemon: Daemon) -> None:
    def fetch() -> Any:
        message = Run()
        blocks.lend_for_results(message, [SPEC])
        read = blocks.reclaim(message, daemon.answer(message))
        return None if read is None else read(4 * N)

    held = [fetch() for _ in range(MAX_LENT_BLOCKS)]
    assert all(array is not None for array in held)
    assert fetch() is None
    held.pop()
    assert fetch() is not None


def test_a_fork_retires_what_is_read_and_nothing_else(blocks: Blocks, daemon: Daemon) -> None:
    inherited = call(blocks, daemon, 1)
    reader = inherited[:1]  # as in a child
    blocks.retire_read()
    del inherited
    for n in range(10):
        call(blocks, daemon, 100 + n)
    blocks.tidy(float("inf"))
    assert reader[0] == 2
    assert daemon.pool.lent_bytes == 0
    other = Daemon.__new__(Daemon)
    other.pool, other.lent, other.resident = daemon.pool, Lent(daemon.pool), []
    another = Blocks(other, lambda: None)
    kept = [call(another, other, 1000 + n) for n in range(5)]
    assert reader[0] == 2
    del kept


def test_idle_blocks_go_back(blocks: Blocks, daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(100)
    monkeypatch.setattr(client, "monotonic", lambda: next(clock))
    read = call(blocks, daemon, 1)
    assert blocks.tidy(next(clock))
    assert daemon.pool.lent_bytes == daemon.pool.nbytes
    assert not blocks.tidy(next(clock) + client.IDLE_SECONDS)
    assert 0 < daemon.pool.lent_bytes < daemon.pool.nbytes  # what is read stays
    assert read[0] == 2
    del read
    assert not blocks.tidy(next(clock) + 2 * client.IDLE_SECONDS)
    assert daemon.pool.lent_bytes == 0


def test_more_free_blocks_than_a_few_go_back(blocks: Blocks, daemon: Daemon) -> None:
    held = [call(blocks, daemon, n) for n in range(10)]
    del held
    blocks.tidy()
    assert daemon.pool.lent_bytes == client._MAX_FREE_BLOCKS * 4 * N


def test_late_drops_after_the_end_do_no_harm(daemon: Daemon) -> None:
    woken: list[int] = []
    blocks = Blocks(daemon, lambda: woken.append(1))
    array = call(blocks, daemon, 4)
    del blocks
    gc.collect()
    daemon.lent.close()
    assert array[0] == 5
    del array
