"""Answers of a machine in place of `jitserver connect-stdio`: `python hostile.py KIND`."""

import struct
import sys
from typing import Any

import msgspec
from rpyc.core import brine, consts

from jitclient.capture.codec.plain import Reduced
from jitclient.capture.codec.values import to_bytes
from jitclient.wire.connection import HANDLE_VERB
from jitclient.wire.messages import BUSY, PROTOCOL, REPLY, Failure, Welcome
from jitclient.wire.reply import FAILED, OK
from jitclient.wire.ssh import greeting

encode = msgspec.msgpack.encode
TOUCHES = Reduced("named", ("os", "system"))
WELCOME = Welcome(PROTOCOL, "0", f"{sys.version_info.major}.{sys.version_info.minor}", {}, "cpu", 1, b"", False, 1, 0)


def framed(body: bytes) -> bytes:
    return struct.pack("<I", len(body)) + body


def reply(number: int, value: Any, label: int = consts.LABEL_VALUE, kind: int = consts.MSG_REPLY) -> bytes:
    return framed(bytes((kind,)) + brine.dump((number, (label, value))))


def request(arguments: Any) -> bytes:
    return framed(bytes((consts.MSG_REQUEST,)) + brine.dump((7, (HANDLE_VERB, (consts.LABEL_VALUE, arguments)))))


def failure(kind: str) -> bytes:
    module, _, name = kind.rpartition(".")
    named = to_bytes(Reduced("named", (module, name)))
    return FAILED + encode(Failure((named,), "text", to_bytes(("touch /tmp/hostile",))))


ANSWERS = {
    "bytes without a meaning": lambda number: b"\0\1\2\3" * 1000,
    "a frame of 4 GiB": lambda number: b"\xff\xff\xff\xff",
    "a reference to an object": lambda number: reply(number, ("os", 1, 2), consts.LABEL_REMOTE_REF),
    "an exception of rpyc": lambda number: reply(number, ("os.system", ("x",), (), "tb"), kind=consts.MSG_EXCEPTION),
    "a request to the client": lambda number: framed(
        bytes((consts.MSG_REQUEST,)) + brine.dump((7, (64, (1, ("stop", b"")))))
    ),
    "an answer to another question": lambda number: framed(bytes((REPLY,)) + b"x"),
    "only that it is busy, and the end": lambda number: framed(bytes((BUSY,)) + encode(["tracing", 1.0])),
    "another message": lambda number: reply(number, OK + encode(["x"])),
    "an error that is a function": lambda number: reply(number, failure("os.system")),
    "another protocol": lambda number: reply(number, OK + encode(msgspec.structs.replace(WELCOME, protocol=0))),
    "nothing": lambda number: b"",
}


def main(kind: str) -> None:
    out, given = sys.stdout.buffer, sys.stdin.buffer
    if kind == "noise without end":
        while True:
            out.write(b"welcome! " * 1000)
    out.write(greeting(None))
    out.flush()
    (length,) = struct.unpack("<I", given.read(4))
    number = brine.load(given.read(length)[1:])[0]
    out.write(ANSWERS[kind](number))
    out.flush()


if __name__ == "__main__":
    main(sys.argv[1])
