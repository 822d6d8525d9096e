"""Shared memory when things go wrong: no client reads bytes that another has written since."""

import gc
import os
import resource
import signal
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np
import pytest

import jitclient
from jitclient.wire.messages import LEASE, LEASED, REPLY, RETURN, RUN, Lease, Leased, Return, Run, Verb
from jitclient.wire.reply import Reply
from jitclient.wire.shared_memory import received

N = 300_000  # too large for a message


@jitclient.jit
def plus_one(x: Any) -> Any:
    return x + 1


@jitclient.jit
def with_sum(x: Any) -> Any:
    return x + 1, x.sum()


@jitclient.jit
def twice(x: Any) -> Any:
    return jax.numpy.concatenate([x, x]) + 1


@jitclient.jit
def same(x: Any) -> Any:
    return x


@jitclient.jit(donate_argnums=0)
def plus_one_in_place(x: Any) -> Any:
    return x + 1


def full(value: float) -> Any:
    return np.full(N, value, np.float32)


def look(value: float) -> Any:
    return np.asarray(plus_one(full(value)))


def assert_full(array: Any, value: float) -> None:
    assert float(array.min()) == float(array.max()) == value


def test_arrays_cross_in_shared_memory_and_not_over_the_socket(
    unharmed: Any, client_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jitclient.wire.connection import ClientConnection

    def no_bytes(*_: Any) -> Any:
        raise AssertionError("array bytes on the socket")

    monkeypatch.setattr(ClientConnection, "read_attachment", no_bytes)
    with client_of(unharmed.address):
        first = look(1)
        assert not first.flags.writeable
        assert unharmed.counts().lent_bytes > first.nbytes
        for n in range(10):
            assert_full(look(n), n + 1)
        assert_full(first, 2)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Gets the number of each Run of this process that calls or looks. What it drops, it may tell at any time."""
    from jitclient.wire.connection import ClientConnection

    send, runs = ClientConnection.send_frame, list[int]()

    def noted(self: Any, kind: int, body: bytes, *rest: Any) -> None:
        if kind == RUN:
            run = msgspec.msgpack.decode(body, type=Run)
            runs.extend([run.number] * bool(run.calls or run.fetch))
        send(self, kind, body, *rest)

    monkeypatch.setattr(ClientConnection, "send_frame", noted)
    return runs


def test_a_large_result_is_asked_for_when_it_is_read(
    unharmed: Any, client_of: Any, asked: list[int], on_the_daemon: None
) -> None:
    with client_of(unharmed.address):
        with_sum(full(1))
        asked.clear()
        large, small = with_sum(full(2))
        assert float(small) == 2 * N
        assert len(asked) == 1
        assert_full(np.asarray(large), 3)
        assert len(asked) == 2


def test_results_outlive_connection_session_and_daemon(serve: Any, client_of: Any) -> None:
    with serve() as daemon:
        with client_of(daemon.address) as session:
            results = [look(1)]
            session.disconnect()
            results += [look(2), look(3)]
            session.disconnect()
            look(4)
        with client_of(daemon.address):
            results.append(look(5))
    for result, value in zip(results, (2, 3, 4, 6), strict=True):
        assert_full(result, value)


def test_arrays_that_stay_are_not_overwritten(unharmed: Any, client_of: Any) -> None:
    with client_of(unharmed.address):
        put = [jitclient.device_put(full(n)) for n in range(5)]
        passed_on = [same(full(10 + n)) for n in range(5)]
        source = full(30)
        late = plus_one(source)
        source[:] = 0  # it was copied at the call
        for n in range(10):
            look(100 + n)
        donated = [plus_one_in_place(array) for array in put]
        for n in range(10):
            look(200 + n)
        for n in range(5):
            assert_full(np.asarray(donated[n]), n + 1)
            assert_full(np.asarray(passed_on[n]), 10 + n)
        assert_full(np.asarray(late), 31)


def test_odd_shapes_and_types_cross(unharmed: Any, client_of: Any) -> None:
    import ml_dtypes

    arrays = [
        np.arange(N).reshape(300, 1000).T.astype(np.int32),
        np.arange(N, dtype=np.int32)[::-2],
        np.arange(N).astype(ml_dtypes.bfloat16),
        np.arange(N) % 3 == 0,
        np.arange(N, dtype=np.complex64).reshape(3, 100, 1000),
    ]
    with client_of(unharmed.address):
        for array, back in zip(arrays, jitclient.device_get(same(arrays)), strict=True):
            assert back.dtype == array.dtype
            np.testing.assert_array_equal(back, array)


@pytest.mark.parametrize("dropped_by_the_parent", [False, True])
def test_a_forked_child_reads_what_it_inherited(unharmed: Any, start_client: Any, dropped_by_the_parent: bool) -> None:
    source = f"""
    f = jitclient.jit(lambda x: x + 1)
    held = [np.asarray(f(np.full({N}, n, np.float32))) for n in range(3)]
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.read(read, 1)  # until the parent has done what it could
        right = all((held[n] == n + 1).all() for n in range(3))
        mine = np.asarray(f(np.full({N}, 50, np.float32)))
        right = right and (mine == 51).all() and all((held[n] == n + 1).all() for n in range(3))
        os._exit(0 if right else 1)
    if {dropped_by_the_parent}:
        del held
    for n in range(10):
        assert (np.asarray(f(np.full({N}, 100 + n, np.float32))) == 101 + n).all()
    os.write(write, b".")
    assert os.waitpid(pid, 0)[1] == 0
    print("right")
    """
    client = start_client(unharmed, source)
    client.says("right")
    client.ends()


def test_a_clean_end_gives_back_warm_memory(unharmed: Any, start_client: Any) -> None:
    source = f"""
    import jitclient.session.session
    jitclient.session.session._GOODBYE_SECONDS = 60  # on a busy machine
    jitclient.device_get(jitclient.device_put(np.zeros({8 * N}, np.float32)))
    print("done")
    """
    client = start_client(unharmed, source)
    client.says("done")
    client.ends()
    counts = unharmed.counts()
    assert counts.lent_bytes == 0
    assert counts.shared_bytes >= 32 * N


def test_a_killed_clients_memory_is_not_lent_again_but_freed(
    unharmed: Any, start_client: Any, until: Any, client_of: Any
) -> None:
    source = f"""
    f = jitclient.jit(lambda x: x + 1)
    held = [np.asarray(f(np.full({N}, n, np.float32))) for n in range(3)]
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    pid = os.fork()
    if pid == 0:
        os.close(0), os.close(1)
        signal.sigwait([signal.SIGUSR1])
        open(RESULT, "w").write(str([float(a.min()) == float(a.max()) == n + 1 for n, a in enumerate(held)]))
        os._exit(0)
    print(pid)
    signal.pause()
    """
    result = Path(unharmed.path.parent / "result")
    before = unharmed.counts().shared_bytes
    client = start_client(unharmed, source.replace("RESULT", f"'{result}'"))
    child = int(client.process.stdout.readline())
    client.kill()
    until(lambda: unharmed.counts().lent_bytes == 0, "the memory to come back")
    assert unharmed.counts().shared_bytes <= before
    with client_of(unharmed.address):
        results = [look(100 + n) for n in range(5)]
    os.kill(child, signal.SIGUSR1)
    until(result.exists, "the orphan to look")
    until(lambda: result.read_text(), "its verdict")
    assert result.read_text() == str([True] * 3)
    for n, array in enumerate(results):
        assert_full(array, 101 + n)


def test_without_descriptors_a_client_uses_the_socket(unharmed: Any, start_client: Any) -> None:
    source = f"""
    import resource
    f = jitclient.jit(lambda x: x + 1)
    assert float(f(np.float32(1))) == 2
    f(np.zeros({N}, np.float32))  # compiled
    jitclient.session.process.session().disconnect()
    assert float(f(np.float32(1))) == 2
    limit = len(os.listdir("/proc/self/fd")) - 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    try:
        os.dup(0)
    except OSError:
        print("full")
    for n in range(3):
        assert (np.asarray(f(np.full({N}, n, np.float32))) == n + 1).all()
    print("right")
    """
    client = start_client(unharmed, source)
    client.says("full", "right")
    client.ends()


def test_a_daemon_without_descriptors_uses_the_socket(serve: Any, client_of: Any) -> None:
    with serve() as daemon, client_of(daemon.address):
        assert float(plus_one(np.float32(1))) == 2
        soft, hard = resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (4, hard))  # of which it has all
        for n in range(3):
            assert_full(look(n), n + 1)
        resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (soft, hard))
        assert daemon.counts().shared_bytes == 0


def test_a_daemon_that_shares_nothing_uses_the_socket(serve: Any, client_of: Any) -> None:
    with serve("--shared-memory", "0") as daemon, client_of(daemon.address):
        for n in range(3):
            assert_full(look(n), n + 1)
        assert daemon.counts().shared_bytes == 0


# ---- peers that keep to no rule


def lease(peer: Any, nbytes: int) -> tuple[Leased, Any]:
    with peer.stream.receiving_fds() as descriptors:
        peer.channel.send(bytes((LEASE,)) + msgspec.msgpack.encode(Lease(nbytes)))
        answer = peer.channel.recv()
        assert answer[0] == LEASED
        leased = msgspec.msgpack.decode(answer[1:], type=Leased)
        return leased, received(leased.block, leased.capacity, descriptors[0]) if leased.block else None


@pytest.mark.parametrize("message", [Run(block=1 << 20), Run(block=-1), Run(into=1 << 20, fetch=(1,))])
def test_who_names_a_block_of_others_is_cut_off(peer: Any, message: Run) -> None:
    peer.hello()
    peer.channel.send(bytes((RUN,)) + msgspec.msgpack.encode(message))
    if message.into:  # which is of no interest until there is something to write
        answer = peer.channel.recv()
        assert answer[0] == REPLY
        assert not msgspec.msgpack.decode(answer[1:], type=Reply).shared
    else:
        assert peer.is_cut_off()


@pytest.mark.parametrize("number", [0, 1 << 20])
def test_who_gives_back_what_it_has_not_is_cut_off(peer: Any, number: int) -> None:
    peer.hello()
    peer.channel.send(bytes((RETURN,)) + msgspec.msgpack.encode(Return(free=(number,))))
    assert peer.is_cut_off()


def test_a_block_is_given_back_once(peer: Any) -> None:
    peer.hello()
    leased, _ = lease(peer, 1000)
    for _ in range(2):
        peer.channel.send(bytes((RETURN,)) + msgspec.msgpack.encode(Return(free=(leased.block,))))
    assert peer.is_cut_off()


def test_without_a_session_nothing_is_lent(peer: Any) -> None:
    peer.channel.send(bytes((LEASE,)) + msgspec.msgpack.encode(Lease(1000)))
    assert peer.is_cut_off()


def test_who_asks_for_all_memory_gets_a_share(peer: Any) -> None:
    peer.hello()
    assert lease(peer, 1 << 60)[1] is None
    held = [lease(peer, 1000)[1] for _ in range(100)]
    assert None in held


def test_descriptors_that_a_peer_sends_are_closed(unharmed: Any, peer: Any, until: Any) -> None:
    import socket

    peer.hello()
    before = len(unharmed.descriptors())
    data = msgspec.msgpack.encode(Run())
    frame = (1 + len(data)).to_bytes(4, "little") + bytes((RUN,)) + data
    with open(os.devnull) as nothing:
        for _ in range(50):
            socket.send_fds(peer.stream.sock, [frame], [nothing.fileno()] * 5)
            assert peer.channel.recv()[0] == REPLY
    until(lambda: len(unharmed.descriptors()) <= before, "them to be closed")  # it may have others open for a moment


def test_a_session_is_left_with_what_is_lent(unharmed: Any, peer: Any, until: Any) -> None:
    peer.hello()
    block = lease(peer, 1 << 20)[1]
    whole, _ = block.readable()
    peer.ask(Verb.GOODBYE, None)
    peer.connection.close()
    peer.token = b""
    until(lambda: unharmed.counts().lent_bytes == 0, "the memory to come back")
    gc.collect()
    assert int(whole[5]) == 0
