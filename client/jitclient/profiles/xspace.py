"""Times in a serialized XSpace, the message in which XLA's profiler records (tsl/profiler/protobuf/xplane.proto).

They count from the begin of the recording, and XProf takes all files of a run to begin at once. Field 1 of an XSpace
has planes, their field 3 has lines, and field 3 of these is a time. The last value of a field counts, so one is added.
"""

import itertools
import re
from collections.abc import Callable, Iterator

_NUMBER = re.compile(rb"[\x80-\xff]*[\x00-\x7f]")


def moved(xspace: bytes, later: int) -> bytes:
    """Return a recording whose lines are later by some nanoseconds."""
    return _changed(xspace, 1, lambda plane: _changed(plane, 3, lambda line: _moved_line(line, later)))


def _moved_line(line: bytes, later: int) -> bytes:
    before_events = itertools.takewhile(lambda field: field[0] < 4, _fields(line))
    times = (_number(line, content)[0] for number, _, content, _ in before_events if number == 3)
    return line + _encoded(3 << 3) + _encoded((next(times, 0) + later) % (1 << 64))


def _changed(message: bytes, wanted: int, change: Callable[[bytes], bytes]) -> bytes:
    """Return a message after a change of one of its fields, of which there may be several."""
    parts = []
    for number, begin, content, end in _fields(message):
        if number == wanted:
            changed = change(message[content:end])
            parts += [message[begin : begin + 1], _encoded(len(changed)), changed]
        else:
            parts.append(message[begin:end])
    return b"".join(parts)


def _fields(message: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield the fields of a message: number, and where they, their contents and the next ones begin."""
    begin = 0
    while begin < len(message):
        tag, content = _number(message, begin)
        length, end = {1: (8, content), 5: (4, content)}.get(tag & 7) or _number(message, content)
        if tag & 7 == 2:
            content = end
        if tag & 7:
            end += length
        yield tag >> 3, begin, content, end
        begin = end


def _number(message: bytes, at: int) -> tuple[int, int]:
    """Return a number, and where it ends."""
    found = _NUMBER.match(message, at)
    assert found is not None
    return sum((byte & 0x7F) << 7 * place for place, byte in enumerate(found[0])), found.end()


def _encoded(number: int) -> bytes:
    return bytes([number & 0x7F | 0x80]) + _encoded(number >> 7) if number > 0x7F else bytes([number])
