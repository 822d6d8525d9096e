"""The attacks by name: messages with extreme counts, depths and sizes, and extreme orders of frames."""

import contextlib
import itertools
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from rpyc.core import brine, consts

from benchmarks.faults.peer import Peer
from jitclient.wire.explaining import Explain
from jitclient.wire.messages import (
    MAX_CALLS,
    MAX_ITEMS,
    MAX_LISTS,
    UPLOAD_BYTES,
    Attached,
    Call,
    Lookup,
    Manifest,
    Prepare,
    Put,
    Report,
    Run,
    Settle,
    Signature,
    Spec,
    Upload,
    Verb,
)
from jitclient.wire.named_arrays import Find, Keep
from jitclient.wire.shardings import Mesh, Sharding

MAX_CALL_SECONDS = 2.0
"""Maximum time of a call of a healthy client."""
_encode = msgspec.msgpack.encode

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
    "many names to compare": _asking(Verb.SETTLE, Settle(_lookup(), "f", Manifest(NAMES, (b"x",) * MAX_ITEMS))),
    "many names to settle": _asking(
        Verb.SETTLE, Settle(_lookup(), "f", Manifest(NAMES, (b"x",) * MAX_ITEMS), agrees=True)
    ),
    "a capture that is none": _asking(
        Verb.EXPLAIN, Explain(Prepare(_lookup(), "f", "", names=NAMES), b"x" * (8 << 20)), 10
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
