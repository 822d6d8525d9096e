"""Attacks by messages at random: each list empty, of one item, or as long as it may be."""

import contextlib
import functools
import random
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from benchmarks.faults.peer import Peer
from jitclient.wire.explaining import Explain
from jitclient.wire.messages import MAX_FRAME_BYTES, MAX_ITEMS, RUN, Lookup, Prepare, Run, Settle, Verb
from jitclient.wire.named_arrays import Find, Keep

_encode = msgspec.msgpack.encode

_KINDS: dict[Verb, type] = {
    Verb.LOOKUP: Lookup,
    Verb.PREPARE: Prepare,
    Verb.SETTLE: Settle,
    Verb.EXPLAIN: Explain,
    Verb.FIND: Find,
    Verb.KEEP: Keep,
}


def attacks() -> Iterator[tuple[str, Callable[[Path], None]]]:
    """Yield the attacks and their names."""
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
