"""Times in a serialized XSpace, the message in which XLA's profiler records (tsl/profiler/protobuf/xplane.proto).

They count from the begin of the recording, and XProf takes all files of a run to begin at once. Field 1 of an XSpace
has planes, their field 3 has lines, and field 3 of these is a time. The last value of a field counts, so one is added.
"""

import itertools
import re
from collections.abc import Iterator

_NUMBER = re.compile(rb"[\x80-\xff]*[\x00-\x7f]")


def moved(message: bytes, later: int, path: tuple[int, ...] = (1, 3)) -> bytes:
    """Return a recording whose lines are later by some nanoseconds, or a part of it, with the fields to its lines."""
    if not path:
        before_events = itertools.takewhile(lambda field: field[0] < 4, _fields(message))
        times = (_number(message, content)[0] for number, _, content, _ in before_events if number == 3)
        return message + _encoded(3 << 3) + _encoded((next(times, 0) + later) % (1 << 64))
    parts = []
    for number, begin, content, end in _fields(message):
        if number == path[0]:
            inner = moved(message[content:end], later, path[1:])
            parts += [message[begin : begin + 1], _encoded(len(inner)), inner]
        else:
            parts.append(message[begin:end])
    return b"".join(parts)


def _fields(message: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield the fields of a message: number, and where they, their contents and the next ones begin."""
    end = 0
    while end < len(message):
        begin = end
        tag, content = _number(message, begin)
        kind = tag & 7
        if kind == 2:
            length, content = _number(message, content)
            end = content + length
        else:
            end = content + {1: 8, 5: 4}[kind] if kind else _number(message, content)[1]
        yield tag >> 3, begin, content, end


def _number(message: bytes, at: int) -> tuple[int, int]:
    """Return a number, and where it ends."""
    found = _NUMBER.match(message, at)
    assert found is not None
    return sum((byte & 0x7F) << 7 * place for place, byte in enumerate(found[0])), found.end()


def _encoded(number: int) -> bytes:
    return bytes([number & 0x7F | 0x80]) + _encoded(number >> 7) if number > 0x7F else bytes([number])
