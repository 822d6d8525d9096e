"""The locked-down protocol, with a real socket between its two ends."""

import contextlib
import errno
import gc
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from rpyc.core import brine, consts
from rpyc.core.service import Service

from jitclient.core import events
from jitclient.errors import DaemonLost, DaemonSilent, ProtocolError
from jitclient.wire import shared_memory, stream
from jitclient.wire.channel import WireChannel
from jitclient.wire.connection import HANDLE_VERB, ClientConnection, WireConnection
from jitclient.wire.messages import LEASE, LEASED, MAX_FRAME_BYTES, REPLY, RETURN, RUN, Leased, Return, Verb
from jitclient.wire.reply import Reply
from jitclient.wire.shared_memory import OwnBlock

from ...descriptors import open_descriptors


class Answers(Service):
    def exposed_status(self, connection: Any, payload: bytes) -> bytes:
        if payload == b"exit":
            raise SystemExit(7)
        return payload[::-1]

    def exposed_other(self, connection: Any, payload: bytes) -> bytes:
        raise AssertionError("not a verb")

    def on_disconnect(self, connection: Any) -> None:
        pass


class Ends:
    """A client's end, and the other end as a bare socket or served by a thread."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.client = ClientConnection(WireChannel(stream.WireStream(ours)))
        self.bare = theirs
        self.error: BaseException | None = None

    def serve(self) -> None:
        other = WireConnection(Answers(), WireChannel(stream.WireStream(self.bare)))

        def work() -> None:
            try:
                while True:
                    other.serve()
            except BaseException as error:
                self.error = error
                other.close()

        self.thread = threading.Thread(target=work)
        self.thread.start()


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends()
    yield made
    made.client.close()
    if hasattr(made, "thread"):
        made.thread.join(60)
        assert not made.thread.is_alive()
    made.bare.close()


def request_frame(handler: int, label: int, arguments: Any) -> bytes:
    return bytes((consts.MSG_REQUEST,)) + brine.dump((1, (handler, (label, arguments))))


def test_a_verb_is_answered(ends: Ends) -> None:
    ends.serve()
    assert ends.client.request(Verb.STATUS, b"abc") == b"cba"


@pytest.mark.parametrize("verb", ["other", "__init__", "on_disconnect", ""])
def test_only_verbs_can_be_asked_for(ends: Ends, verb: str) -> None:
    ends.serve()
    with pytest.raises(ProtocolError, match="no such verb"):
        ends.client.request(verb, b"")  # type: ignore[arg-type]
    assert ends.client.request(Verb.STATUS, b"on") == b"no"


def test_the_other_sides_system_exit_is_an_error_here_and_ends_nobody(ends: Ends) -> None:
    ends.serve()
    with pytest.raises(ProtocolError, match="SystemExit: 7"):
        ends.client.request(Verb.STATUS, b"exit")
    assert ends.client.request(Verb.STATUS, b"on") == b"no"


@pytest.mark.parametrize("label", [consts.LABEL_LOCAL_REF, consts.LABEL_REMOTE_REF, consts.LABEL_TUPLE])
def test_references_are_refused(ends: Ends, label: int) -> None:
    ends.serve()
    ends.client._channel.send(request_frame(HANDLE_VERB, label, ("builtins.object", 1, 2)))
    kind, (_, text) = next_answer(ends)
    assert kind == consts.MSG_EXCEPTION
    assert "references to objects are refused" in text


HANDLERS = [n for n in vars(consts) if n.startswith("HANDLE_") and n != "HANDLE_PING"]


@pytest.mark.parametrize("name", HANDLERS)
def test_none_of_rpycs_handlers_is_left_but_ping(ends: Ends, name: str) -> None:
    ends.serve()
    ends.client._channel.send(request_frame(getattr(consts, name), consts.LABEL_VALUE, ()))
    kind, (_, text) = next_answer(ends)
    assert kind == consts.MSG_EXCEPTION
    assert text.startswith("KeyError")


def next_answer(ends: Ends) -> tuple[int, Any]:
    data = ends.client._channel.recv()
    return data[0], brine.load(data[1:])


def test_an_exception_of_the_peer_builds_no_type_of_its_naming(ends: Ends) -> None:
    forged = (("subprocess", "CalledProcessError"), (), (), "traceback")
    reply = bytes((consts.MSG_EXCEPTION,)) + brine.dump((0, forged))
    ends.bare.sendall(struct.pack("<I", len(reply)) + reply)
    with pytest.raises(ProtocolError, match="the peer refused"):
        ends.client.request(Verb.STATUS, b"")


def test_too_long_a_frame_is_refused_before_it_is_read(ends: Ends) -> None:
    ends.serve()
    ends.client._channel.stream.write(struct.pack("<I", MAX_FRAME_BYTES + 1))
    ends.thread.join(60)
    assert isinstance(ends.error, ProtocolError)
    assert "is refused" in str(ends.error)


def test_a_large_frame_reserves_memory_for_each_part_before_it_arrives(ends: Ends, until: Any) -> None:
    large, small = bytes(1 << 20), bytes(1 << 10)
    received: list[bytes] = []
    reserved: list[int] = []
    ends.client._channel.large_frame = lambda: contextlib.nullcontext(reserved.append)
    reader = threading.Thread(target=lambda: received.extend(ends.client._channel.recv() for _ in range(2)))
    reader.start()
    ends.bare.sendall(struct.pack("<I", len(small)) + small + struct.pack("<I", len(large)) + large[:1000])
    until(lambda: reserved, "the first part of the large frame")
    assert received == [small]
    assert len(reserved) == 1
    ends.bare.sendall(large[1000:])
    reader.join()
    assert received == [small, large]
    assert (len(reserved), sum(reserved)) == (4, len(large))


def test_too_long_a_message_is_not_sent(ends: Ends) -> None:
    with pytest.raises(ProtocolError, match="longer than a frame may be"):
        ends.client.send_frame(RUN, bytes(MAX_FRAME_BYTES))


def test_a_peer_that_stops_in_the_middle_of_a_frame_is_given_up(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "STALL_SECONDS", 0.05)
    ends.serve()
    ends.client._channel.stream.write(struct.pack("<I", 100) + b"half")
    ends.thread.join(60)
    assert isinstance(ends.error, TimeoutError)
    assert "paused within a frame" in str(ends.error)


def test_a_silent_daemon_is_lost(ends: Ends) -> None:
    with pytest.raises(DaemonLost, match="has sent nothing"):
        ends.client.request(Verb.STATUS, b"", timeout=0.05)


BROKEN = {
    "a host that vanished": (OSError(errno.ETIMEDOUT, "keepalive"), DaemonLost),
    "a daemon that hangs": (BlockingIOError(errno.EAGAIN, "patience"), DaemonSilent),
}


@pytest.mark.parametrize("case", BROKEN)
def test_only_a_daemon_that_may_still_be_there_is_silent(
    case: str, ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    error, kind = BROKEN[case]

    def fails(channel: WireChannel) -> bytes:
        raise error

    monkeypatch.setattr(WireChannel, "recv_at_once", fails)
    with pytest.raises(DaemonLost) as caught:
        ends.client.reply()
    assert type(caught.value) is kind


def replied(reply: Reply) -> bytes:
    return bytes((REPLY,)) + msgspec.msgpack.encode(reply)


def exchanged(ends: Ends) -> Reply:
    ends.client.send_frame(RUN, b"")
    return ends.client.reply()


def test_a_daemon_that_hangs_up_is_lost(ends: Ends) -> None:
    ends.bare.shutdown(socket.SHUT_WR)
    with pytest.raises(DaemonLost, match="closed by peer"):
        exchanged(ends)


def test_answers_that_are_there_are_taken_one_at_a_time(ends: Ends) -> None:
    assert ends.client.reply_if_ready() is None
    frame = replied(Reply(7))
    ends.bare.sendall((struct.pack("<I", len(frame)) + frame) * 2)
    assert [ends.client.reply_if_ready() for _ in range(3)] == [Reply(7), Reply(7), None]
    ends.bare.close()
    with pytest.raises(DaemonLost, match="closed by peer"):
        ends.client.reply_if_ready()


def test_frames_longer_than_the_buffer_and_split_ones_arrive_whole(ends: Ends) -> None:
    reply = Reply(7, values=[bytes(range(256)) * 4096])  # 1 MiB
    frame = struct.pack("<I", len(replied(reply))) + replied(reply)

    def trickle() -> None:
        for start in range(0, len(frame), 100_001):
            ends.bare.sendall(frame[start : start + 100_001])

    sender = threading.Thread(target=trickle)
    sender.start()
    assert exchanged(ends) == reply
    sender.join()


class Counted(socket.socket):
    """A socket that counts how often it is read."""

    reads = 0

    def recv_into(self, *arguments: Any) -> int:
        self.reads += 1
        return super().recv_into(*arguments)


def test_what_arrives_in_many_pieces_is_read_at_once(until: Any) -> None:
    ours, theirs = socket.socketpair()
    whole = bytes(range(256)) * 4096  # 1 MiB, longer than the buffers of the sockets
    counted, target = Counted(fileno=ours.detach()), bytearray(len(whole))
    with counted, theirs:
        reader = threading.Thread(target=stream.WireStream(counted).read_rest, args=(memoryview(target),))
        reader.start()
        for start in range(0, len(whole), 16 << 10):  # as ssh does
            theirs.sendall(whole[start : start + (16 << 10)])
        reader.join(60)
        assert target == whole
        assert counted.reads == 1


class Bounded(socket.socket):
    """A socket of macOS, which refuses more bytes at once than it likes."""

    most = 1 << 20

    def recv_into(self, view: Any, *arguments: Any) -> int:
        if len(view) > self.most:
            raise OSError(errno.EINVAL, "Invalid argument")
        return super().recv_into(view, *arguments)

    def sendmsg(self, parts: Any, *arguments: Any) -> int:
        if sum(map(len, parts)) > self.most:
            raise OSError(errno.EINVAL, "Invalid argument")
        return super().sendmsg(parts, *arguments)


def test_arrays_of_any_size_are_sent_and_read_in_pieces_that_macos_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert max(stream._PART_BYTES * stream._MAX_PARTS, stream._READ_BYTES) < (1 << 31) - 1
    for name, value in {"_PART_BYTES": 1 << 16, "_MAX_PARTS": 16, "_READ_BYTES": 1 << 20}.items():
        monkeypatch.setattr(stream, name, value)
    whole = bytes(range(256)) * (12 << 10)  # 3 MiB
    ends = [stream.WireStream(Bounded(fileno=end.detach())) for end in socket.socketpair()]
    writer = threading.Thread(target=ends[0].write, args=(whole[:5], whole[5:5], memoryview(whole)[5:]))
    writer.start()
    target = bytearray(len(whole))
    ends[1].read_rest(memoryview(target))
    writer.join(60)
    assert target == whole
    for end in ends:
        end.close()


def test_busy_frames_report_the_phase_and_are_no_answer(ends: Ends) -> None:
    phases: list[str] = []
    busy = bytes((18,)) + msgspec.msgpack.encode(["tracing", 1.5])
    ends.bare.sendall(b"".join(struct.pack("<I", len(frame)) + frame for frame in (busy, replied(Reply(7)))))
    with events.log.observed_by(phases.append):
        assert exchanged(ends) == Reply(7)
    assert phases == ["tracing"]


def test_what_does_not_fit_is_dropped_rather_than_waited_for(ends: Ends) -> None:
    channel = ends.client._channel
    for _ in range(100_000):
        channel.send_if_room(b"x" * 100)  # no peer reads: the socket's buffer fills, and this returns all the same
    assert not channel.closed


def test_over_a_network_nothing_waits_for_more_and_a_lost_host_is_noticed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as sock:
        held = stream.WireStream(sock)
        assert held.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        idle, interval, count = (
            sock.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        assert 0 < idle + interval * count <= stream.STALL_SECONDS


# ---- shared memory


def lease_from(ends: Ends, answer: Leased, descriptors: list[int]) -> Any:
    """Return a client's lease from a daemon with this answer."""
    frame = bytes((LEASED,)) + msgspec.msgpack.encode(answer)
    socket.send_fds(ends.bare, [struct.pack("<I", len(frame)) + frame], descriptors)
    return ends.client.lease(1 << 20)


def returned(ends: Ends) -> Return:
    """Return the blocks that the client gives back, after its question."""
    channel = WireChannel(stream.WireStream(ends.bare))
    assert channel.recv()[0] == LEASE
    answer = channel.recv()
    assert answer[0] == RETURN
    return msgspec.msgpack.decode(answer[1:], type=Return)


def test_a_block_is_lent(ends: Ends) -> None:
    block = OwnBlock(7, 1 << 20)
    before = open_descriptors()
    lent = lease_from(ends, Leased(7, 1 << 20), [block.fd])
    block.writable()[5] = 3
    assert (lent.number, lent.capacity, lent.writable()[5]) == (7, 1 << 20, 3)
    del lent
    gc.collect()
    assert open_descriptors() <= before


def test_where_nothing_is_lent_nothing_comes(ends: Ends) -> None:
    assert lease_from(ends, Leased(), []) is None


@pytest.mark.parametrize("capacity", [1 << 19, 1 << 21])
def test_memory_of_another_size_than_the_daemon_says_is_refused(ends: Ends, capacity: int) -> None:
    block = OwnBlock(7, 1 << 20)
    before = open_descriptors()
    with pytest.raises(ProtocolError, match="shared memory of 1,048,576 bytes"):
        lease_from(ends, Leased(7, capacity), [block.fd])
    assert open_descriptors() <= before


def test_what_is_no_memory_is_refused(ends: Ends) -> None:
    before = open_descriptors()
    with pytest.raises(ProtocolError):
        lease_from(ends, Leased(7, 1 << 20), [ends.bare.fileno()])
    assert open_descriptors() <= before


def test_a_block_whose_descriptor_was_lost_is_retired(ends: Ends) -> None:
    assert lease_from(ends, Leased(7, 1 << 20), []) is None
    assert returned(ends) == Return(retired=(7,))


def test_a_block_that_cannot_be_mapped_is_retired(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    block = OwnBlock(7, 1 << 20)

    def no_room(*_: Any, **__: Any) -> Any:
        raise OSError(12, "Cannot allocate memory")

    before = open_descriptors()
    with monkeypatch.context() as patch:
        patch.setattr(shared_memory.mmap, "mmap", no_room)
        assert lease_from(ends, Leased(7, 1 << 20), [block.fd]) is None
    assert returned(ends) == Return(retired=(7,))
    assert open_descriptors() <= before


def test_memory_is_shared_over_sockets_of_this_machine_only(ends: Ends) -> None:
    assert ends.client.can_share()
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as sock:
        assert not ClientConnection(WireChannel(stream.WireStream(sock))).can_share()
