"""The daemon's shared memory: which connection may use a block, and when another one may."""

import itertools
from typing import Any

import numpy as np
import pytest

from jitclient.errors import ProtocolError
from jitclient.wire import shared_memory as wire
from jitclient.wire.messages import Return
from jitserver.system import shared_memory
from jitserver.system.shared_memory import BlockPool, Lent

MIB = 1 << 20


@pytest.fixture
def pool() -> BlockPool:
    return BlockPool(16 * MIB)


@pytest.fixture
def lent(pool: BlockPool) -> Lent:
    return Lent(pool)


def number_of(lent: Lent, nbytes: int = MIB) -> int:
    leased, fd = lent.lease(nbytes)
    assert leased.block
    assert fd is not None
    assert leased.capacity >= nbytes
    return leased.block


def test_a_returned_block_is_reused(pool: BlockPool, lent: Lent) -> None:
    number = number_of(lent)
    assert pool.lent_bytes == pool.nbytes == MIB
    assert number_of(Lent(pool)) != number
    lent.take_back(Return(free=(number,)))
    assert pool.lent_bytes == MIB
    assert number_of(Lent(pool)) == number
    assert pool.nbytes == 2 * MIB


def test_a_retired_block_is_never_reused(pool: BlockPool, lent: Lent) -> None:
    number = number_of(lent)
    lent.take_back(Return(retired=(number,)))
    assert pool.nbytes == pool.lent_bytes == 0
    assert number_of(lent) != number


def test_the_blocks_of_a_closed_connection_are_retired(pool: BlockPool, lent: Lent) -> None:
    numbers = {number_of(lent), number_of(lent)}
    lent.arguments(min(numbers))
    lent.close()
    assert pool.nbytes == pool.lent_bytes == 0
    assert number_of(Lent(pool)) not in numbers


def test_a_block_of_arguments_is_returned_if_nothing_reads_it(lent: Lent) -> None:
    number = number_of(lent)
    view = lent.arguments(number)(1000)
    del view
    assert lent.release_arguments(number)
    lent.arguments(number)  # the client may use it again


def test_a_block_that_an_array_uses_is_kept_until_the_array_is_freed(pool: BlockPool, lent: Lent) -> None:
    number = number_of(lent)
    view = lent.arguments(number)(1000).view(np.int16)[3:]
    assert not lent.release_arguments(number)
    assert pool.lent_bytes == 0
    other = number_of(lent)
    assert other != number
    lent.take_back(Return(free=(other,)))
    del view
    assert {number_of(lent), number_of(lent)} == {number, other}


def test_a_client_can_use_only_its_own_blocks(pool: BlockPool, lent: Lent) -> None:
    foreign, given_back, at_us = number_of(Lent(pool)), number_of(lent), number_of(lent)
    lent.take_back(Return(free=(given_back,)))
    lent.arguments(at_us)
    for number in (foreign, given_back, at_us, 0, -1, 999):
        for use in (
            lambda n: lent.arguments(n),
            lambda n: lent.fill(n, [np.zeros(1, np.int8)]),
            lambda n: lent.take_back(Return(free=(n,))),
            lambda n: lent.take_back(Return(retired=(n,))),
        ):
            with pytest.raises(ProtocolError):
                use(number)


def test_values_that_do_not_fit_are_not_written(lent: Lent) -> None:
    number = number_of(lent)
    assert lent.fill(number, [np.full(MIB, 7, np.uint8)])
    assert not lent.fill(number, [np.zeros(MIB, np.uint8), np.zeros(1, np.uint8)])
    assert lent.arguments(number)(MIB)[MIB - 1] == 7


def test_the_total_size_has_a_limit(pool: BlockPool, lent: Lent) -> None:
    numbers = [number_of(lent, 4 * MIB) for _ in range(4)]
    assert lent.lease(1)[0].block == 0
    assert Lent(BlockPool(0)).lease(1)[0].block == 0
    lent.take_back(Return(free=tuple(numbers[:2])))
    number_of(lent, 8 * MIB)  # in place of free ones that are too small
    assert pool.nbytes == 16 * MIB


def test_the_number_of_blocks_of_a_client_has_a_limit() -> None:
    lent = Lent(BlockPool(1 << 40))
    for _ in range(wire.MAX_LENT_BLOCKS):
        number_of(lent, 1)
    assert lent.lease(1)[0].block == 0


def test_an_invalid_size_is_refused(lent: Lent) -> None:
    for nbytes in (0, -1, 1 << 62):
        assert lent.lease(nbytes)[0].block == 0


def test_unused_blocks_are_freed(pool: BlockPool, lent: Lent, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(1000)
    monkeypatch.setattr(shared_memory.time, "monotonic", lambda: next(clock))
    lent.take_back(Return(free=(number_of(lent),)))
    number_of(lent, 4 * MIB)
    pool.trim(next(clock))
    assert pool.nbytes == 5 * MIB
    pool.trim(next(clock) + shared_memory.IDLE_SECONDS)
    assert pool.nbytes == 4 * MIB


def test_without_descriptors_no_block_is_lent(pool: BlockPool, lent: Lent, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_descriptor(*_: Any) -> int:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(wire.os, "memfd_create", no_descriptor)
        assert not BlockPool(MIB).lends
        assert lent.lease(MIB)[0].block == 0
        assert pool.nbytes == pool.lent_bytes == 0
    number_of(lent)
