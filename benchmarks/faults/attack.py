"""An attack: valid frames with extreme counts, depths, sizes and orders, from peers that keep to no other rule.

While each one is served, a healthy client calls; its longest call, and the memory that the daemon takes, are limited.
"""

import contextlib
import functools
import itertools
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import inspect
from rpyc.core import brine, consts

import jitclient
from benchmarks.faults.result import Result
from benchmarks.faults.stage import Stage, stage
from jitclient.errors import ArrayBudgetExceeded
from jitclient.wire.address import Address
from jitclient.wire.channel import WireChannel
from jitclient.wire.connection import ClientConnection
from jitclient.wire.explaining import Explain, KeyPart
from jitclient.wire.messages import (
    MAX_CALLS,
    MAX_FRAME_BYTES,
    MAX_ITEMS,
    MAX_LISTS,
    PROTOCOL,
    RUN,
    UPLOAD_BYTES,
    Attached,
    Call,
    Hello,
    Lookup,
    Manifest,
    Prepare,
    Put,
    Report,
    Run,
    Settle,
    Signature,
    Spec,
    State,
    Upload,
    Verb,
    Welcome,
)
from jitclient.wire.named_arrays import Find, Keep
from jitclient.wire.reply import decoded_answer
from jitclient.wire.shardings import Mesh, Sharding
from jitclient.wire.stream import WireStream

_OPTIONS = ("--array-memory", "128")
MAX_CALL_SECONDS, MAX_GROWTH_BYTES = 2.0, 200 << 20
"""Limits of the longest call of a healthy client, and of the memory that one attack takes."""

_SECONDS = 60.0
"""Time of an attack, and the time for which an attacker waits for an answer."""
_encode = msgspec.msgpack.encode


class Peer:
    """A client that keeps to no rule. Its failures are of no interest."""

    def __init__(self, path: Path) -> None:
        self.connection = ClientConnection(WireChannel(WireStream(Address.parse(f"unix:{path}").connect())), _SECONDS)
        self.channel: WireChannel = self.connection._channel
        self.token = b""

    def hello(self, token: bytes = b"", client: bytes = b"attacker") -> None:
        """Begin a session, or join one."""
        hello = Hello(PROTOCOL, "0", "3", {}, token, client)
        welcome: Welcome = decoded_answer(self.connection.request(Verb.HELLO, _encode(hello)), Welcome)
        self.token = welcome.token

    def ask(self, verb: Verb, message: Any) -> None:
        """Send a request, and wait for its answer."""
        self.connection.request(verb, _encode(message))

    def run(self, run: Run, *attachments: Any) -> None:
        """Send a Run, and wait for its answer and for the values that follow it."""
        self.connection.send_frame(RUN, _encode(run), attachments)
        for value in self.connection.reply().values:
            if isinstance(value, Attached):
                self.connection.read_attachment(value.nbytes)

    def write(self, body: bytes) -> None:
        """Send a frame, and wait for the end of the connection."""
        self.channel.stream.write(struct.pack("<I", len(body)) + body)
        while True:
            self.channel.recv()

    def close(self) -> None:
        """Say goodbye, and hang up."""
        with contextlib.suppress(Exception):
            self.ask(Verb.GOODBYE, None)
        self.connection.close()


def attack(folder: Path) -> Iterator[Result]:
    """Yield the result of each attack."""
    with stage(folder, options=_OPTIONS) as there:
        session = jitclient.connect(f"unix:{there.path}")
        _add(np.float32(0))
        for name, act in itertools.chain(ATTACKS.items(), _fuzzed()):
            yield _attacked(there, name, act)
        session.close()


@jitclient.jit
def _add(x: Any) -> Any:
    return x + 1


def _attacked(there: Stage, name: str, act: Callable[[Path], None]) -> Result:
    result = Result(f"attack by {name}", injections=1)
    assert there.daemon is not None
    process = Path(f"/proc/{there.daemon.pid}")
    (process / "clear_refs").write_text("5")  # the peak is that since now
    before = _bytes(process, "VmRSS")
    attacker = threading.Thread(target=_until_cut_off, args=(act, there.path, result), daemon=True)
    attacker.start()
    deadline, longest = time.monotonic() + _SECONDS, 0.0
    while attacker.is_alive() and time.monotonic() < deadline:
        start = time.monotonic()
        with contextlib.suppress(ArrayBudgetExceeded):  # an attacker may hold all of it, as on a device
            result.check(float(_add(np.float32(1))) == 2, "a value is wrong")
        longest = max(longest, time.monotonic() - start)
    grown = _bytes(process, "VmHWM") - before
    result.check(longest < MAX_CALL_SECONDS, f"the longest call took {longest:.1f} s")
    result.check(grown < MAX_GROWTH_BYTES, f"the daemon took {grown >> 20} MiB")
    result.figures = {"longest call, s": longest, "memory, MiB": grown / (1 << 20)}
    return result


def _until_cut_off(act: Callable[[Path], None], path: Path, result: Result) -> None:
    try:
        act(path)
    except AssertionError as error:
        result.check(False, str(error))
    except Exception:  # it is cut off, or refused
        pass


def _bytes(process: Path, name: str) -> int:
    return int((process / "status").read_text().partition(f"{name}:")[2].split()[0]) << 10


# ---- attacks

HANDLES = (1 << 40,) * MAX_ITEMS
SMALL, LARGE = Spec((), "float32"), Spec((4 << 20,), "float32")
SIGNATURE = Signature(tree=b"", leaves=(), statics=(), donated=(), options=(), context=())


def _lookup(**fields: Any) -> Lookup:
    of_signature = {name: fields.pop(name) for name in list(fields) if hasattr(SIGNATURE, name)}
    signature = msgspec.structs.replace(SIGNATURE, **of_signature)
    return Lookup(**{"capture_key": "k", "function_key": "k", "packages": (), "signature": signature, **fields})


def _asking(verb: Verb, message: Any, times: int = 1) -> Callable[[Path], None]:
    def act(path: Path) -> None:
        with contextlib.closing(Peer(path)) as peer:
            peer.hello()
            for _ in range(times):
                peer.ask(verb, message)

    return act


def _running(run: Run, *attachments: Any, holds: int = 0) -> Callable[[Path], None]:
    def act(path: Path) -> None:
        with contextlib.closing(Peer(path)) as peer:
            peer.hello()
            for first in range(0, holds, MAX_ITEMS):
                peer.run(Run(puts=[Put(SMALL, bytes(4), first + n) for n in range(MAX_ITEMS)], number=first + 1))
            if Attached(16 << 20) in [put.value for put in run.puts]:
                peer.run(Run(puts=run.puts, number=2), np.zeros(4 << 20, np.float32))
            peer.run(msgspec.structs.replace(run, puts=[], number=1 << 20), *attachments)

    return act


def _writing(body: bytes) -> Callable[[Path], None]:
    def act(path: Path) -> None:
        peer = Peer(path)
        peer.hello()
        peer.write(body)

    return act


def _joining(path: Path) -> None:
    first = Peer(path)
    first.hello()
    for number in range(500):
        peer = Peer(path)
        peer.hello(first.token, b"%0256d" % number)
        peer.connection.close()
    first.close()


def _dripping(path: Path) -> None:
    peers = [Peer(path) for _ in range(60)]
    for peer in peers:
        peer.hello()
        peer.channel.stream.sock.settimeout(0.1)
        with contextlib.suppress(OSError):
            peer.channel.stream.sock.sendall(struct.pack("<I", UPLOAD_BYTES) + bytes(4 << 20))
    for peer, _ in itertools.product(peers, range(3)):
        with contextlib.suppress(OSError):
            peer.channel.stream.sock.send(b"x")
    with contextlib.closing(Peer(path)) as healthy:
        healthy.hello()
        start = time.monotonic()
        healthy.ask(Verb.UPLOAD, Upload("k", 0, bytes(UPLOAD_BYTES)))
        if time.monotonic() - start > MAX_CALL_SECONDS:
            raise AssertionError("a healthy frame waited")
    for peer in peers:
        peer.connection.close()


def _putting_small_arrays(path: Path) -> None:
    """Put arrays without dimensions: more than the budget has room for."""
    with contextlib.closing(Peer(path)) as peer:
        peer.hello()
        for first in range(0, 8 * MAX_ITEMS, MAX_ITEMS):
            peer.run(Run(puts=[Put(SMALL, bytes(4), first + n) for n in range(MAX_ITEMS)], number=first + 1))
        peer.close()  # otherwise the daemon keeps its arrays for a while, and has no room for others


def _lending(path: Path) -> None:
    """Put as many arrays from a lent block as a Run may, wait for them, and fetch them."""
    with contextlib.closing(Peer(path)) as peer:
        peer.hello()
        blocks = [block for block in (peer.connection.lease(1 << 20) for _ in range(4)) if block is not None]
        spec = Spec((1,), "float32")
        for number, block in enumerate(blocks, 1):
            puts = [Put(spec, Attached(4), n) for n in range(MAX_ITEMS)]
            handles = tuple(range(MAX_ITEMS))
            peer.run(Run(puts=puts, wait=handles, fetch=handles, number=number, block=block.number, into=0))


def _lending_much(path: Path) -> None:
    with contextlib.closing(Peer(path)) as peer:
        peer.hello()
        peer.connection.lease(1 << 31)


def _single_bytes(path: Path) -> None:
    with contextlib.closing(Peer(path)) as peer:
        peer.hello()
        for start in range(5000):
            peer.ask(Verb.UPLOAD, Upload("k", start, b"x"))


MESH = Mesh((("x", 2),), ("Auto",), tuple(range(2)) * 512)
NAMES = tuple(f"n{number}" for number in range(MAX_ITEMS))
ATTACKS: dict[str, Callable[[Path], None]] = {
    "many arguments": _running(Run(calls=[Call(0, [Attached(1)] * (MAX_ITEMS // 2), 7)] * MAX_CALLS)),
    "many drops before calls": _running(Run(calls=[Call(0, [], 7, (300,) * MAX_ITEMS)] * MAX_CALLS)),
    "many waits and fetches": _running(Run(wait=HANDLES, fetch=HANDLES, drop=HANDLES)),
    "many fetches of one array": _running(
        Run(puts=[Put(LARGE, Attached(16 << 20), 7)], fetch=(7,) * 200),
    ),
    "many handles, and questions about them": _running(Run(wait=HANDLES), holds=MAX_ITEMS),
    "many puts from lent blocks": _lending,
    "a lease of two GiB": _lending_much,
    "many small arrays": _putting_small_arrays,
    "many leaves": _asking(Verb.LOOKUP, _lookup(leaves=(SMALL,) * MAX_ITEMS), 20),
    "many devices": _asking(Verb.LOOKUP, _lookup(leaves=(Spec((), "f", False, Sharding(MESH)),) * (MAX_ITEMS // 2))),
    "many axes": _asking(
        Verb.LOOKUP, _lookup(leaves=(Spec((), "f", False, Sharding(None, (("ab",) * 64,) * 8)),) * 5000)
    ),
    "many static values": _asking(Verb.LOOKUP, _lookup(statics=((0, b""),) * MAX_ITEMS), 20),
    "many unknown packages": _asking(Verb.LOOKUP, _lookup(packages=NAMES[:1024])),
    "many manifests": _asking(Verb.LOOKUP, _lookup(manifests=(Manifest(NAMES),) * MAX_LISTS)),
    "many names to compare": _asking(Verb.STATE, State(NAMES, (b"x",) * MAX_ITEMS)),
    "many names to settle": _asking(Verb.SETTLE, Settle(_lookup(), "f", Manifest(NAMES), state=(b"x",) * MAX_ITEMS)),
    "many parts of a key": _asking(
        Verb.EXPLAIN, Explain(_lookup(), "f", _encode([KeyPart("", "", b"", "")] * 2 * MAX_ITEMS)), 10
    ),
    "long texts": _asking(Verb.PREPARE, Prepare(_lookup(), "f" * (4 << 20), "x" * (4 << 20)), 10),
    "many releases": _asking(Verb.REPORT, Report(released=tuple(range(MAX_ITEMS))), 20),
    "names of many arrays": _asking(Verb.KEEP, Keep("n", "k", NAMES[:1024], (SMALL,), b"", "", HANDLES, None)),
    "a search for many packages": _asking(Verb.FIND, Find("n", "k", NAMES[:1024], 1, None)),
    "uploads of a byte": _single_bytes,
    "many members of a session": _joining,
    "many peers that drip": _dripping,
    "a request of many items": _writing(
        bytes((consts.MSG_REQUEST,))
        + brine.TAG_TUP_L4
        + struct.pack("!L", 1 << 22)
        + (brine.TAG_TUP1 + b"P") * (1 << 22)
    ),
}


# ---- at random

_KINDS: dict[Verb, type] = {
    Verb.LOOKUP: Lookup,
    Verb.PREPARE: Prepare,
    Verb.SETTLE: Settle,
    Verb.STATE: State,
    Verb.EXPLAIN: Explain,
    Verb.FIND: Find,
    Verb.KEEP: Keep,
}


def _fuzzed() -> Iterator[tuple[str, Callable[[Path], None]]]:
    chance = random.Random(0)
    for verb, kind in _KINDS.items():
        # Made before the attack, since this process is the healthy client as well.
        messages = [_at_random(kind, chance) for _ in range(20)]
        yield f"random messages ({verb})", functools.partial(_ask_each, verb, messages)
    yield "random messages (run)", functools.partial(_run_each, [_at_random(Run, chance) for _ in range(20)])


def _ask_each(verb: Verb, messages: list[bytes], path: Path) -> None:
    with contextlib.closing(Peer(path)) as peer:
        peer.hello()
        for message in messages:
            peer.ask(verb, msgspec.Raw(message))


def _run_each(messages: list[bytes], path: Path) -> None:
    for message in messages:
        with contextlib.suppress(Exception), contextlib.closing(Peer(path)) as peer:
            peer.hello()
            peer.connection.send_frame(RUN, message)
            peer.channel.stream.sock.shutdown(socket.SHUT_WR)
            peer.connection.reply()


def _at_random(kind: type, chance: random.Random) -> bytes:
    """Return a message with extreme lists that fits in a frame."""
    for most in (MAX_ITEMS, 4000, 1000, 200, 20, 0):
        found = _encode(_value(inspect.type_info(kind), chance, most))
        if len(found) < MAX_FRAME_BYTES:
            break
    return found


def _value(kind: Any, chance: random.Random, most: int) -> Any:
    if isinstance(kind, inspect.StructType):
        tag = [] if kind.tag is None else [kind.tag]
        return [*tag, *(_value(field.type, chance, most) for field in kind.fields)]
    if isinstance(kind, inspect.UnionType):
        return _value(chance.choice(kind.types), chance, most)
    if isinstance(kind, inspect.TupleType):
        return [_value(each, chance, most) for each in kind.item_types]
    if isinstance(kind, (inspect.VarTupleType, inspect.ListType)):
        count = chance.choice((0, 1, min(most, kind.max_length or most)))
        return [_value(kind.item_type, chance, int(most**0.5))] * count
    simple: dict[type, tuple[Any, ...]] = {
        inspect.IntType: (0, 1, -1, 127, 1 << 31, 1 << 40, (1 << 63) - 1),
        inspect.FloatType: (0.0, -1.0, float("inf"), float("nan")),
        inspect.BoolType: (False, True),
        inspect.StrType: ("", "x", "float32", "\ud7ff" * 80),
        inspect.BytesType: (b"", b"x", bytes(200)),
    }
    return chance.choice(simple.get(type(kind), (None,)))
