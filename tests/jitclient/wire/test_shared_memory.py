"""Shared memory: what is taken for it, who can still read it, and how descriptors for it cross."""

import fcntl
import gc
import os
import socket
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from jitclient.errors import ProtocolError
from jitclient.wire import shared_memory
from jitclient.wire.stream import WireStream

from ...descriptors import open_descriptors

SIZE = 1 << 20


@pytest.fixture
def streams() -> Iterator[tuple[WireStream, WireStream]]:
    ends = socket.socketpair()
    yield WireStream(ends[0]), WireStream(ends[1])
    for end in ends:
        end.close()


@pytest.fixture
def descriptors() -> Iterator[list[int]]:
    """To be closed afterwards."""
    opened: list[int] = []
    yield opened
    for fd in opened:
        os.close(fd)


def test_both_ends_see_the_same_bytes() -> None:
    ours = shared_memory.OwnBlock(1, SIZE)
    theirs = shared_memory.received(1, SIZE, ours.fd)
    arrays = [np.arange(1000, dtype=np.float64).reshape(10, 100).T, np.ones((7, 3), np.int8)]
    shared_memory.copy_into(ours, arrays)
    read = shared_memory.Reader(theirs.readable()[0])
    for array in arrays:
        raw = read(array.nbytes)
        assert raw.ctypes.data % shared_memory.ALIGNMENT == 0
        np.testing.assert_array_equal(raw.view(array.dtype).reshape(array.shape), array)


def unsealed(fd: int) -> None:
    os.ftruncate(fd, SIZE)


def half_sealed(fd: int) -> None:
    os.ftruncate(fd, SIZE)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)


def not_writable(fd: int) -> None:
    os.ftruncate(fd, SIZE)
    every = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL | fcntl.F_SEAL_WRITE
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, every)


def short(fd: int) -> None:
    os.ftruncate(fd, SIZE // 2)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)


@pytest.mark.parametrize("make", [unsealed, half_sealed, not_writable, short])
def test_memory_that_is_not_as_agreed_is_refused(make: Any, descriptors: list[int]) -> None:
    descriptors.append(os.memfd_create("test", os.MFD_ALLOW_SEALING))
    make(descriptors[0])
    with pytest.raises(ProtocolError):
        shared_memory.received(1, SIZE, descriptors[0])


def test_what_is_no_shared_memory_is_refused(descriptors: list[int]) -> None:
    with tempfile.TemporaryFile() as file:
        file.truncate(SIZE)
        with pytest.raises(ProtocolError):
            shared_memory.received(1, SIZE, file.fileno())
    descriptors += os.pipe()
    with pytest.raises(ProtocolError):
        shared_memory.received(1, SIZE, descriptors[0])


def test_the_size_of_a_block_can_never_change() -> None:
    block = shared_memory.OwnBlock(1, SIZE)
    for size in (0, 2 * SIZE):
        with pytest.raises(PermissionError):
            os.ftruncate(block.fd, size)


@pytest.mark.parametrize(
    "keep",
    [
        lambda whole: whole,
        lambda whole: whole[5:10].view(np.int8)[1:],
        lambda whole: memoryview(whole)[3:4],
        lambda whole: np.broadcast_to(whole[:1], (4, 4)).T,
        lambda whole: iter([np.asarray(whole).reshape(2, -1)[0]]),
    ],
)
def test_whoever_can_still_read_a_block_is_known(keep: Any) -> None:
    events: list[str] = []
    whole, reference = shared_memory.OwnBlock(1, SIZE).readable(lambda: events.append("gone"))
    kept = keep(whole)
    del whole
    gc.collect()
    assert reference() is not None
    assert not events
    del kept
    assert reference() is None
    assert events == ["gone"]


def test_what_is_read_cannot_be_written() -> None:
    whole, _ = shared_memory.OwnBlock(1, SIZE).readable()
    with pytest.raises(ValueError, match="read-only"):
        whole[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        whole[:10].flags.writeable = True


def test_more_than_the_block_holds_cannot_be_read() -> None:
    read = shared_memory.Reader(shared_memory.OwnBlock(1, SIZE).readable()[0])
    read(SIZE - 63)
    for nbytes in (1, -1):
        with pytest.raises(ProtocolError):
            read(nbytes)


def test_sizes_are_few_and_waste_little() -> None:
    sizes = [shared_memory.capacity_for(n) for n in range(1, 1 << 22, 4099)]
    assert all(n <= size <= max(1.25 * n, 64 << 10) for n, size in zip(range(1, 1 << 22, 4099), sizes, strict=True))
    assert len(set(sizes)) < 30


def test_a_block_leaves_no_descriptor() -> None:
    before = open_descriptors()
    ours = shared_memory.OwnBlock(1, SIZE)
    theirs = shared_memory.received(1, SIZE, ours.fd)
    array = theirs.readable()[0][:10]
    del ours, theirs
    del array
    assert open_descriptors() <= before


# ---- over a socket


def test_a_descriptor_comes_with_its_bytes(streams: tuple[WireStream, WireStream]) -> None:
    ours, theirs = streams
    block = shared_memory.OwnBlock(1, SIZE)
    before = open_descriptors()
    with theirs.receiving_fds() as came:
        ours.write(b"with", fd=block.fd)
        buffer = bytearray(4)
        theirs.read_rest(memoryview(buffer))
        assert bytes(buffer) == b"with"
        assert len(came) == 1
        assert fcntl.fcntl(came[0], fcntl.F_GETFD) & fcntl.FD_CLOEXEC
        assert os.fstat(came[0]).st_ino == os.fstat(block.fd).st_ino
    assert open_descriptors() <= before  # no receiver took it


@pytest.mark.parametrize("looking", [False, True])
def test_descriptors_that_nobody_asked_for_are_closed(
    streams: tuple[WireStream, WireStream], looking: bool, descriptors: list[int]
) -> None:
    ours, theirs = streams
    descriptors += os.pipe()
    before = open_descriptors()
    socket.send_fds(ours.sock, [b"many"], descriptors * 20)
    buffer = bytearray(4)
    if looking:
        with theirs.receiving_fds() as came:
            theirs.read_rest(memoryview(buffer))
            assert len(came) <= 1
    else:
        theirs.read_rest(memoryview(buffer))
    assert bytes(buffer) == b"many"
    assert open_descriptors() <= before


def test_many_parts_arrive_in_order(streams: tuple[WireStream, WireStream]) -> None:
    import threading

    ours, theirs = streams
    parts = [bytes([n % 251]) * (n * 37) for n in range(1500)]
    sent = threading.Thread(target=ours.write, args=(b"head", *parts))
    sent.start()
    whole = b"head" + b"".join(parts)
    buffer = bytearray(len(whole))
    theirs.read_rest(memoryview(buffer))
    sent.join()
    assert bytes(buffer) == whole


@pytest.mark.parametrize(("mib", "is_populated"), [(1, True), (512, False)])
def test_the_pages_of_a_large_block_are_made_when_they_are_used(mib: int, is_populated: bool) -> None:
    """Other threads of the process stand still while a map is populated: for a second, if it has some GiB."""
    block = shared_memory.OwnBlock(1, mib << 20)
    assert bool(os.fstat(block.fd).st_blocks) == is_populated
