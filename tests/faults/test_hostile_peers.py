"""Peers that are broken or hostile: each is refused or cut off, and no other client notices."""

import random
import select
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np
import pytest
from rpyc.core import brine, consts

from jitclient.capture.codec import values
from jitclient.capture.dump import capture
from jitclient.core.digests import digest
from jitclient.core.settings import Settings
from jitclient.errors import ArrayBudgetExceeded, ArrayLost, CaptureError, DaemonUnavailable, ProtocolError
from jitclient.jaxside import tree
from jitclient.session.handshake import ask
from jitclient.wire.connection import HANDLE_VERB
from jitclient.wire.introspection import Listed, Match
from jitclient.wire.messages import (
    BUSY,
    CALLBACK,
    CALLED_BACK,
    FIRST_FRAME_BYTES,
    LEASE,
    MAX_FRAME_BYTES,
    MAX_ITEMS,
    PROTOCOL,
    REPLY,
    RUN,
    UPLOAD_BYTES,
    Attached,
    Call,
    Callback,
    CalledBack,
    DeviceInfo,
    Failure,
    Hello,
    Lease,
    Lookup,
    Prepare,
    Prepared,
    Put,
    Run,
    Signature,
    Spec,
    Upload,
    Verb,
    Welcome,
)
from jitclient.wire.reply import Reply

encode = msgspec.msgpack.encode

LOCALLY = """
    print(float(jitclient.jit(lambda x: x + 1)(np.float32(1))))
"""


def framed(body: bytes) -> bytes:
    return struct.pack("<I", len(body)) + body


def request(*arguments: Any, label: int = consts.LABEL_VALUE) -> bytes:
    return framed(bytes((consts.MSG_REQUEST,)) + brine.dump((1, (HANDLE_VERB, (label, arguments)))))


CUT_OFF = {
    "garbage": framed(random.Random(1).randbytes(4096)),
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a frame of 4 GiB": b"\xff\xff\xff\xff",
    "a frame of nothing": framed(b""),
    "brine that nests too deep": framed(bytes((consts.MSG_REQUEST,)) + brine.TAG_TUP1 * 200_000 + brine.TAG_NONE),
    "brine cut short": framed(bytes((consts.MSG_REQUEST,)) + brine.dump((1, (HANDLE_VERB, (1, ("status", b"")))))[:-3]),
    "brine that is no request": framed(bytes((consts.MSG_REQUEST,)) + brine.dump("hello")),
    "an unknown kind of message": framed(b"\x09" + brine.dump((1, 2))),
    "an answer to no question": framed(bytes((REPLY,)) + b"x"),
    "busyness": framed(bytes((BUSY,)) + encode(["tracing", 1.0])),
    "a run before hello": framed(bytes((RUN,)) + encode(Run())),
}


@pytest.mark.parametrize("name", CUT_OFF)
def test_what_is_no_message_of_ours_cuts_the_peer_off(peer: Any, name: str) -> None:
    peer.stream.write(CUT_OFF[name])
    assert peer.is_cut_off()


REFUSED = {
    "a reference to an object": request("status", b"", label=consts.LABEL_REMOTE_REF),
    "an unknown verb": request("exec", b"import os"),
    "a method that is no verb": request("on_disconnect", b""),
    "a verb that is no string": request(b"status", b""),
    "too many arguments": request("status", b"", b""),
    "a message that is no msgpack": request("hello", b"\xc1\xc1"),
    "a message of another type": request("hello", encode(["x"])),
    "a message that nests too deep": request("lookup", b"\x91" * 50_000),
    "a lookup before hello": request(
        "lookup",
        encode(Lookup("k", "k", (), Signature(tree=b"", leaves=(), statics=(), donated=(), options=(), context=()))),
    ),
    "an upload before hello": request("upload", encode(Upload("k", 0, b"x"))),
    "a goodbye before hello": request("goodbye", encode(None)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_nobody_may_ask_is_refused(peer: Any, name: str) -> None:
    peer.stream.write(REFUSED[name])
    answer = peer.channel.recv()
    refused_by_rpyc = answer[0] == consts.MSG_EXCEPTION
    _, payload = brine.load(answer[1:])
    assert refused_by_rpyc or payload[1][:1] == b"\1"
    peer.hello()  # it may mend its ways


@pytest.mark.parametrize("sent", [b"\x10", framed(b"x" * 1000)[:500]], ids=["header", "body"])
def test_half_a_frame_and_then_nothing_harms_nobody(peer: Any, sent: bytes) -> None:
    peer.stream.write(sent)


def test_one_connection_has_one_session(peer: Any) -> None:
    peer.hello()
    with pytest.raises(ProtocolError, match="has a session already"):
        peer.hello()


def test_a_token_that_was_never_given_resumes_nothing(peer: Any) -> None:
    assert not peer.hello(b"guessed" * 2).resumed


# ---- runs

F32 = Spec((1000, 1000), "float32")
CUT_OFF_RUNS = {
    "no message": b"\xc1",
    "an unknown executable": encode(Run(calls=[Call(12345, [], 7)])),
    "an executable below zero": encode(Run(calls=[Call(-1, [], 7)])),
    "an attachment too short": encode(Run(puts=[Put(F32, Attached(3_999_996), 7)])),
    "an attachment too long": encode(Run(puts=[Put(F32, Attached(1 << 40), 7)])),
    "an attachment below zero": encode(Run(puts=[Put(Spec((-4,), "float32"), Attached(-16), 7)])),
    "an attachment beyond all memory": encode(Run(puts=[Put(Spec((1 << 60,), "int8"), Attached(1 << 60), 7)])),
    "an attachment of no dtype": encode(Run(puts=[Put(Spec((4,), "finfo"), Attached(16), 7)])),
    "an attachment of a module": encode(Run(puts=[Put(Spec((4,), "__name__"), Attached(16), 7)])),
}


@pytest.mark.parametrize("name", CUT_OFF_RUNS)
def test_a_run_that_makes_no_sense_cuts_the_peer_off(peer: Any, name: str) -> None:
    peer.hello()
    peer.stream.write(framed(bytes((RUN,)) + CUT_OFF_RUNS[name]))
    assert peer.is_cut_off()


MANY = (99,) * (MAX_ITEMS + 1)
TOO_MUCH = {
    "waits": Run(wait=MANY),
    "fetches": Run(fetch=MANY),
    "puts": Run(puts=[Put(F32, b"", 7)] * len(MANY)),
    "calls": Run(calls=[Call(0, [], 7)] * 200),
    "drops": Run(drop=MANY),
    "drops before a call": Run(calls=[Call(0, [], 7, MANY)]),
    "arguments": Run(calls=[Call(0, list(MANY), 7)]),
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_a_run_that_asks_for_too_much_is_not_begun(peer: Any, name: str) -> None:
    peer.hello()
    peer.stream.write(framed(bytes((RUN,)) + encode(TOO_MUCH[name])))
    assert peer.is_cut_off(), "and gets no answer"


LARGE_FRAMES = {
    "a request of many items": bytes((consts.MSG_REQUEST,)) + brine.dump((1, ("x",) * FIRST_FRAME_BYTES)),
    "one that looks like ours": b"".join(
        (bytes((consts.MSG_REQUEST,)), brine.TAG_TUP_L4, brine.I4.pack(1 << 31), brine.TAG_STR1, brine.TAG_STR_L4)
    )
    + brine.I4.pack(2 * FIRST_FRAME_BYTES)
    + brine.TAG_NONE * 2 * FIRST_FRAME_BYTES,
    "an answer to no question": bytes((consts.MSG_REPLY,)) + brine.dump((1, (1, bytes(2 * FIRST_FRAME_BYTES)))),
}


@pytest.mark.parametrize("name", LARGE_FRAMES)
def test_a_large_frame_without_a_payload_at_its_end_is_not_decoded(peer: Any, name: str) -> None:
    peer.hello()
    peer.stream.write(framed(LARGE_FRAMES[name]))
    assert peer.is_cut_off()


def test_a_run_may_ask_for_much(peer: Any) -> None:
    peer.hello()
    done = peer_run(peer, Run(drop=MANY[:MAX_ITEMS], wait=MANY[:1000], fetch=MANY[:1000]))
    assert (len(done.failures[0][0]), len(done.values)) == (1000, 1000)


FAILING_PUTS = {
    "too few bytes": Put(Spec((4,), "float32"), b"abc", 7),
    "a negative length": Put(Spec((-1,), "float32"), b"abcd", 7),
    "objects": Put(Spec((1,), "object"), bytes(8), 7),
    "a structured dtype": Put(Spec((1,), "i4,i4"), bytes(8), 7),
    "no such dtype": Put(Spec((1,), "float33"), bytes(8), 7),
    "no such kind of key": Put(Spec((1,), "key<x>"), bytes(8), 7),
}


@pytest.mark.parametrize("name", FAILING_PUTS)
def test_an_array_that_is_none_fails_alone(peer: Any, name: str) -> None:
    peer.hello()
    good = Put(Spec((2,), "float32"), np.float32([1, 2]).tobytes(), 8)
    done = peer_run(peer, Run(puts=[FAILING_PUTS[name], good], fetch=(7, 8)))
    assert [handles for handles, _ in done.failures] == [[7]]
    lost, kept = done.values
    assert isinstance(lost, Failure)
    assert kept == good.value


def test_as_many_values_as_a_run_may_fetch_fail_in_one_answer(peer: Any) -> None:
    peer.hello()
    many = tuple(range(1, MAX_ITEMS + 1))
    done = peer_run(peer, Run(wait=many, fetch=many))
    [(handles, failure)] = done.failures
    assert tuple(handles) == many
    assert done.values[0] == failure
    assert set(done.values[1:]) == {0}


def test_an_unknown_handle_is_an_array_lost(peer: Any) -> None:
    peer.hello()
    done = peer_run(peer, Run(drop=(1, 2, 2), fetch=(99,), wait=(99,)))
    assert values.name_of(done.failures[0][1].types[0]) == ArrayLost.__name__
    assert isinstance(done.values[0], Failure)


def test_a_peer_that_hangs_up_in_the_middle_of_an_attachment_leaves_nothing(peer: Any) -> None:
    peer.hello()
    peer.stream.write(framed(bytes((RUN,)) + encode(Run(puts=[Put(F32, Attached(4_000_000), 7)]))) + bytes(1_000_000))


LARGE = Spec((128, 1 << 20), "uint8")
SUMS = capture(lambda x: x.sum())


def test_what_has_no_room_is_read_off_the_socket_and_not_kept(serve: Any, peer_of: Any) -> None:
    with serve("--array-memory", "8") as daemon:
        peer = peer_of(daemon.address)
        peer.hello()
        upload(peer, SUMS.key, SUMS.payload)
        arguments = tree.encode(tree.structure_of(tree.flatten(((0.0,), {}))[1]))
        prepared = peer.ask(Verb.PREPARE, preparing(SUMS.key, arguments, (LARGE,)), Prepared)
        large, good = np.ones(LARGE.shape, LARGE.dtype), np.float32([1, 2])
        before = memory_peak(daemon)
        for run in (
            Run(puts=[Put(LARGE, Attached(large.nbytes), 7)]),
            Run(calls=[Call(prepared.executable, [Attached(large.nbytes)], 7)]),
        ):
            done = peer_run(peer, run, [large])
            [(handles, failure)] = done.failures
            assert (handles, values.name_of(failure.types[0])) == ([7], ArrayBudgetExceeded.__name__)
        assert memory_peak(daemon) < before + large.nbytes // 4
        put = Put(Spec((2,), "float32"), good.tobytes(), 8)
        assert peer_run(peer, Run(puts=[put], fetch=(8,))).values == [good.tobytes()]
        peer.close()


def test_as_many_arrays_as_a_run_may_have_are_refused_in_one_answer(serve: Any, peer_of: Any) -> None:
    with serve("--array-memory", "8") as daemon:
        peer = peer_of(daemon.address)
        peer.hello()
        puts = [Put(Spec((), "float32"), bytes(4), handle) for handle in range(1, MAX_ITEMS + 1)]
        [(handles, failure)] = peer_run(peer, Run(puts=puts)).failures
        assert values.name_of(failure.types[0]) == ArrayBudgetExceeded.__name__
        assert handles[-1] == MAX_ITEMS
        peer.close()


def test_an_array_whose_value_a_peer_does_not_read_counts(serve: Any, peer_of: Any) -> None:
    spec, array = Spec((4 << 20,), "float32"), np.zeros(4 << 20, np.float32)
    with serve("--array-memory", "64") as daemon:
        peer = peer_of(daemon.address)
        token = peer.hello().token
        others, refused = list[Any](), list[Any]()
        for _ in range(8):
            refused = peer_run(peer, Run(puts=[Put(spec, Attached(array.nbytes), 7)]), [array]).failures
            if refused:
                break
            others.append(peer_of(daemon.address))
            others[-1].ask(Verb.HELLO, Hello(PROTOCOL, "0", "3", {}, token, b"member %d" % len(others)), Welcome)
            others[-1].stream.write(framed(bytes((RUN,)) + encode(Run(fetch=(7,), number=1))))
            select.select([others[-1].stream.sock], [], [], 60)  # the answer begins
            assert not peer_run(peer, Run(drop=(7,))).failures
        assert len(others) <= 4
        [(_, failure)] = refused
        assert values.name_of(failure.types[0]) == ArrayBudgetExceeded.__name__
        for one in [*others, peer]:
            one.close()


def test_a_put_that_fails_leaves_nothing_of_before_under_its_handle(peer: Any) -> None:
    peer.hello()
    good, bad = (Put(Spec((), "float32"), value, 7) for value in (bytes(4), 999))
    assert peer_run(peer, Run(puts=[good], fetch=(7,))).values == [bytes(4)]
    for run in (Run(puts=[bad], fetch=(7,)), Run(fetch=(7,))):
        [lost] = peer_run(peer, run).values
        assert isinstance(lost, Failure)


def test_what_a_run_drops_is_room_for_what_it_attaches(serve: Any, peer_of: Any) -> None:
    spec, array = Spec((5, 1 << 20), "uint8"), np.ones((5, 1 << 20), np.uint8)
    with serve("--array-memory", "8") as daemon:
        peer = peer_of(daemon.address)
        peer.hello()
        for handle in range(7, 10):
            drop = (handle - 1,)
            assert not peer_run(
                peer, Run(puts=[Put(spec, Attached(array.nbytes), handle)], drop=drop), [array]
            ).failures
        assert len(peer_run(peer, Run(puts=[Put(spec, Attached(array.nbytes), 10)]), [array]).failures) == 1
        peer.close()


def memory_peak(daemon: Any) -> int:
    """Bytes."""
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def peer_run(peer: Any, run: Run, attachments: Sequence[Any] = ()) -> Reply:
    peer.connection.send_frame(RUN, encode(run), attachments)
    reply: Reply = peer.connection.reply()
    return reply


# ---- captures

TREE = tree.encode(tree.structure_of(tree.flatten(((), {}))[1]))


def preparing(key: str, arguments: bytes = TREE, leaves: tuple[Spec, ...] = ()) -> Prepare:
    signature = Signature(tree=arguments, leaves=leaves, statics=(), donated=(), options=(), context=())
    lookup = Lookup(key, key, (), signature)
    return Prepare(lookup, "function", "nowhere.py:1")


def upload(peer: Any, key: str, payload: bytes) -> None:
    for start in range(0, len(payload), UPLOAD_BYTES):
        peer.ask(Verb.UPLOAD, Upload(key, start, payload[start : start + UPLOAD_BYTES]))


def test_a_capture_that_is_not_its_keys_is_refused_before_it_is_loaded(peer: Any, unharmed: Any) -> None:
    peer.hello()
    before = unharmed.counts().captures_loaded
    upload(peer, digest(b"another").hex(), capture(lambda: 1).payload)
    with pytest.raises(ProtocolError, match="does not match its key"):
        peer.ask(Verb.PREPARE, preparing(digest(b"another").hex()), Prepared)
    assert unharmed.counts().captures_loaded == before


def test_a_capture_that_never_came_is_refused(peer: Any) -> None:
    peer.hello()
    with pytest.raises(ProtocolError, match="does not match its key"):
        peer.ask(Verb.PREPARE, preparing(digest(b"").hex()), Prepared)


@pytest.mark.parametrize("payload", [b"\x80\x05.", b"garbage", capture(lambda: 1).payload[:-20]])
def test_a_malformed_capture_is_an_error_of_its_own(peer: Any, payload: bytes) -> None:
    peer.hello()
    upload(peer, digest(payload).hex(), payload)
    with pytest.raises(CaptureError, match="cannot be loaded"):
        peer.ask(Verb.PREPARE, preparing(digest(payload).hex()), Prepared)


def test_a_malformed_signature_is_an_error_of_its_own(peer: Any) -> None:
    peer.hello()
    captured = capture(lambda: 1)
    upload(peer, captured.key, captured.payload)
    request = preparing(captured.key)
    request.lookup.signature.leaves = (Spec((-1,), "nothing"),)
    with pytest.raises(Exception):  # noqa: B017, PT011  (whatever it is: it arrives as an answer)
        peer.ask(Verb.PREPARE, request, Prepared)
    peer.ask(Verb.REPORT, [0, 0])


def test_parts_of_captures_come_in_turn(peer: Any) -> None:
    peer.hello()
    peer.ask(Verb.UPLOAD, Upload("a", 0, b"1234"))
    for part in (Upload("a", 3, b"x"), Upload("a", 5, b"x"), Upload("b", 4, b"x"), Upload("a", -1, b"x")):
        with pytest.raises(ProtocolError, match="out of order"):
            peer.ask(Verb.UPLOAD, part)


def test_an_interrupted_upload_begins_anew(peer: Any) -> None:
    peer.hello()
    captured = capture(lambda: 2)
    peer.ask(Verb.UPLOAD, Upload(captured.key, 0, captured.payload[:10]))
    upload(peer, captured.key, captured.payload)
    assert len(peer.ask(Verb.PREPARE, preparing(captured.key), Prepared).results) == 1


def test_uploads_that_never_end_take_no_memory_of_note(peer: Any, unharmed: Any) -> None:
    peer.hello()
    before = unharmed.counts().memory_bytes
    part = bytes(UPLOAD_BYTES)
    for n in range(50):  # 400 MB under keys of their own
        peer.ask(Verb.UPLOAD, Upload(f"key {n}", 0, part))
    assert unharmed.counts().memory_bytes - before < 15 * UPLOAD_BYTES


PART = request(str(Verb.UPLOAD), encode(Upload("key", 0, bytes(1 << 20))))


def test_peers_that_stop_within_large_frames_hold_up_no_other(unharmed: Any, peer_of: Any) -> None:
    *peers, other = [peer_of(unharmed.address) for _ in range(21)]
    for peer in (*peers, other):
        peer.hello()
    for peer in peers:
        peer.stream.write(PART[:1000])
    upload(other, "key", bytes(1 << 20))
    for peer in peers:  # none was cut off
        peer.stream.write(PART[1000:])
        assert peer.channel.recv()[0] == consts.MSG_REPLY
    for peer in (*peers, other):
        peer.close()


# ---- without a session


def test_before_hello_no_frame_is_long(unharmed: Any, peer_of: Any) -> None:
    before = unharmed.counts().memory_bytes
    peers = [peer_of(unharmed.address) for _ in range(20)]
    for peer in peers:
        peer.stream.write(struct.pack("<I", FIRST_FRAME_BYTES + 1))
    assert all(peer.is_cut_off() for peer in peers)
    assert unharmed.counts().memory_bytes - before < MAX_FRAME_BYTES
    for peer in peers:
        peer.close()


def test_silent_connections_take_no_memory_of_note(unharmed: Any, peer_of: Any) -> None:
    before = unharmed.counts().memory_bytes
    peers = [peer_of(unharmed.address) for _ in range(100)]
    for peer in peers:
        peer.ask(Verb.DEVICES, None, list[DeviceInfo])
    assert unharmed.counts().memory_bytes - before < len(peers) * FIRST_FRAME_BYTES
    for peer in peers:
        peer.close()


def test_a_long_question_without_a_session_is_answered(unharmed: Any) -> None:
    listed = ask(Settings(address=unharmed.address), Verb.ENTRIES, Match("x" * 2 * FIRST_FRAME_BYTES), Listed)
    assert listed.found == []


def test_connections_are_bounded_and_those_beyond_are_told(
    serve: Any, client_of: Any, works: Any, start_client: Any, peer_of: Any, until: Any
) -> None:
    def joined(address: str) -> Any:
        peer = peer_of(address)
        try:
            peer.hello()
        except DaemonUnavailable:  # that of the fixture, which waited for the start, has not ended yet
            peer.close()
            return None
        return peer

    with serve("--most-connections", "4") as daemon:
        peers = [until(lambda: joined(daemon.address), "room for a connection") for _ in range(4)]
        held = len(daemon.sockets())
        with pytest.raises(DaemonUnavailable, match="has reached its limit of connections"), client_of(daemon.address):
            works()
        client = start_client(daemon, LOCALLY, JITSERVER_FALLBACK="local")
        client.says("2.0")
        assert "has reached its limit of connections" in client.ends()
        until(lambda: len(daemon.sockets()) <= held, "the end of their connections")
        more = [peer_of(daemon.address) for _ in range(15)]
        assert daemon.counts().sessions == 4
        until(lambda: len(daemon.sockets()) <= held + 15, "the end of that connection")
        more.append(peer_of(daemon.address))
        assert peer_of(daemon.address).is_cut_off()
        for peer in more:
            peer.close()
        until(lambda: len(daemon.sockets()) <= held, "room for those that come back to say goodbye")
        for peer in peers:
            peer.close()
        until(lambda: len(daemon.sockets()) <= held - 4, "room to ask")
        until(lambda: not daemon.counts().sessions, "the end of the sessions")
        with client_of(daemon.address):
            works()
        until(lambda: not daemon.counts().sessions, "the end of that session")
        peers = [joined(daemon.address) for _ in range(4)]
        for peer in peers:
            peer.connection.close()  # its session waits for it
        until(lambda: len(daemon.sockets()) <= held - 4, "the end of their connections")
        more = [joined(daemon.address) for _ in range(4)]
        assert None not in more, "a client that is away takes no other's place"
        for peer in more:
            peer.connection.close()
        until(lambda: daemon.counts().sessions == 4, "the end of the sessions that have waited for longest")
        for peer in more:
            peer.close()


# ---- answers to callbacks

F3 = Spec((3,), "float32")
GOOD = np.float32([1, 2, 3]).tobytes()
CALLS_BACK = capture(lambda x: jax.pure_callback(lambda v: v, x, x) * 2)


def called(peer: Any) -> Callback:
    """The callback of a call that it makes."""
    upload(peer, CALLS_BACK.key, CALLS_BACK.payload)
    arguments = tree.encode(tree.structure_of(tree.flatten(((0.0,), {}))[1]))
    prepared = peer.ask(Verb.PREPARE, preparing(CALLS_BACK.key, arguments, (F3,)), Prepared)
    run = Run(calls=[Call(prepared.executable, [GOOD], 7)], fetch=(7,))
    peer.connection.send_frame(RUN, encode(run))
    return msgspec.msgpack.decode(next_frame(peer, CALLBACK), type=Callback)


def next_frame(peer: Any, kind: int) -> bytes:
    while (data := peer.channel.recv())[0] == BUSY:
        pass
    assert data[0] == kind
    return data[1:]


def answered_rightly(peer: Any) -> Any:
    """Answer the peer's callback, and return the value of its call."""
    peer.connection.send_frame(CALLED_BACK, encode(CalledBack(called(peer).number, [GOOD])))
    return msgspec.msgpack.decode(next_frame(peer, REPLY), type=Reply).values[0]


def frame(kind: int, message: Any) -> bytes:
    return bytes((kind,)) + encode(message)


FAILING_ANSWERS: dict[str, Callable[[int], bytes]] = {
    "that it failed": lambda n: frame(CALLED_BACK, CalledBack(n, failed=True)),
    "too few arrays": lambda n: frame(CALLED_BACK, CalledBack(n)),
    "too many arrays": lambda n: frame(CALLED_BACK, CalledBack(n, [GOOD, GOOD])),
    "too few bytes": lambda n: frame(CALLED_BACK, CalledBack(n, [GOOD[:-4]])),
    "too many bytes": lambda n: frame(CALLED_BACK, CalledBack(n, [GOOD + bytes(4)])),
    "an attachment too short": lambda n: frame(CALLED_BACK, CalledBack(n, [Attached(8)])),
    "an attachment beyond all memory": lambda n: frame(CALLED_BACK, CalledBack(n, [Attached(1 << 60)])),
    "an attachment below zero": lambda n: frame(CALLED_BACK, CalledBack(n, [Attached(-12)])),
    "no message": lambda n: bytes((CALLED_BACK,)) + b"\xc1",
    "another message": lambda n: frame(CALLED_BACK, ["x"]),
    "a run": lambda n: frame(RUN, Run()),
    "a lease": lambda n: frame(LEASE, Lease(1)),
    "an answer to no question": lambda n: frame(REPLY, Reply(1)),
    "a request": lambda n: request("status", b"")[4:],
}
ATTACHED = {"an attachment too short": bytes(8)}
"""The bytes that an answer promises: the daemon would wait for them."""


@pytest.mark.parametrize("name", FAILING_ANSWERS)
def test_a_wrong_answer_to_a_callback_fails_the_call_alone(peer: Any, unharmed: Any, name: str) -> None:
    peer.hello()
    callback = called(peer)
    assert (callback.specs, callback.arguments) == ([F3], [GOOD])
    peer.stream.write(framed(FAILING_ANSWERS[name](callback.number)) + ATTACHED.get(name, b""))
    done = msgspec.msgpack.decode(next_frame(peer, REPLY), type=Reply)
    assert [handles for handles, _ in done.failures] == [[7]]
    assert answered_rightly(peer) == (2 * np.frombuffer(GOOD, np.float32)).tobytes()


def test_a_peer_that_hangs_up_in_a_callback_leaves_its_program_to_others(peer: Any, unharmed: Any) -> None:
    peer.hello()
    called(peer)
    peer.connection.close()
    other = type(peer)(unharmed.address)
    other.hello()
    assert answered_rightly(other) == (2 * np.frombuffer(GOOD, np.float32)).tobytes()
    other.close()


def test_who_comes_back_on_another_connection_is_not_waited_for_on_the_old_one(peer: Any, unharmed: Any) -> None:
    token = peer.hello().token
    called(peer)  # its link breaks without a word
    again = type(peer)(unharmed.address)
    assert again.hello(token).resumed
    assert peer.is_cut_off()
    assert answered_rightly(again) == (2 * np.frombuffer(GOOD, np.float32)).tobytes()
    again.connection.close()


def test_an_answer_that_no_call_waits_for_is_taken_and_what_is_none_cuts_the_peer_off(peer: Any) -> None:
    peer.hello()
    assert answered_rightly(peer)
    peer.connection.send_frame(CALLED_BACK, encode(CalledBack(100)))
    assert answered_rightly(peer)
    peer.stream.write(framed(bytes((CALLED_BACK,)) + b"\xc1"))
    assert peer.is_cut_off()
