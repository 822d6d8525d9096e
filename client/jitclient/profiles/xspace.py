"""Clock and host of a serialized XSpace, which change when the XSpace joins another one.

An XSpace is the protobuf message in which XLA's profiler records (tsl/profiler/protobuf/xplane.proto). The parts that
are read here, with the numbers of their fields:

    XSpace  1: planes, 4: hostnames
    XPlane  2: name, 3: lines, 5: stat_metadata, 6: stats
    XLine   3: timestamp_ns, 4: events                  timestamps count from the begin of the recording
    XStat   1: metadata_id, 3: uint64_value
    stat_metadata   1: id, 2: { 2: name }

The last value of a field counts, so a field is changed by appending it to its message.
"""

from collections.abc import Iterator

_START, _STOP = b"profile_start_time", b"profile_stop_time"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED = {_FIXED64: 8, _FIXED32: 4}
_MASK = (1 << 64) - 1


def start_of(xspace: bytes) -> int:
    """Return when a recording began, in nanoseconds since the epoch.

    Raises:
        ValueError: the bytes are no XSpace, or do not say when it began.
    """
    for number, plane, _ in _fields(memoryview(xspace)):
        if number == 1:
            for stat, name in _times(plane):
                if name == _START:
                    return _number(stat, 3)
    raise ValueError("the recording does not say when it began")


def moved(xspace: bytes, start: int, clock_ahead: int, host: str) -> bytes:
    """Return a recording as if it had begun at another time, on another host. Its events stay at their times.

    Args:
        xspace: the recording.
        start: the new begin, in nanoseconds since the epoch.
        clock_ahead: by how many nanoseconds the clock of the recording was ahead.
        host: the new name of the host.

    Raises:
        ValueError: the bytes are no XSpace, or do not say when it began.
    """
    later = start_of(xspace) - clock_ahead - start
    parts = []
    for number, plane, raw in _fields(memoryview(xspace)):
        if number == 1:
            parts.append(_bytes_field(1, _moved_plane(plane, later, clock_ahead)))
        elif number != 4:
            parts.append(bytes(raw))
    return b"".join([*parts, _bytes_field(4, host.encode())])


def _moved_plane(plane: memoryview, later: int, clock_ahead: int) -> bytes:
    times = {bytes(stat): name for stat, name in _times(plane)}
    parts = []
    for number, content, raw in _fields(plane):
        if number == 3:
            parts.append(_bytes_field(3, bytes(content) + _varint_field(3, _number(content, 3, before=4) + later)))
        elif number == 6 and (name := times.get(bytes(content))):
            value = _number(content, 3) - clock_ahead - (later if name == _START else 0)
            parts.append(_bytes_field(6, bytes(content) + _varint_field(3, value)))
        else:
            parts.append(bytes(raw))
    return b"".join(parts)


def _times(plane: memoryview) -> Iterator[tuple[memoryview, bytes]]:
    """Yield the stats of a plane that say when the recording began and ended, with their names."""
    names, stats = dict[int, bytes](), list[memoryview]()
    for number, content, _ in _fields(plane):
        if number == 5:
            for inner, metadata, _ in _fields(content):
                if inner == 2:
                    found = [bytes(name) for field, name, _ in _fields(metadata) if field == 2]
                    names[_number(content, 1)] = found[-1] if found else b""
        elif number == 6:
            stats.append(content)
    for stat in stats:
        name = names.get(_number(stat, 1), b"")
        if name in (_START, _STOP):
            yield stat, name


def _number(message: memoryview, wanted: int, before: int = 0) -> int:
    """Return the value of a field that is a number; 0 if it is absent. The search ends at the field `before`."""
    value = 0
    for number, content, _ in _fields(message):
        if number == before:
            break
        if number == wanted:
            value = _varint(content, 0)[0]
    return value


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview, memoryview]]:
    """Yield the fields of a message: number, content, and all bytes.

    Raises:
        ValueError: the bytes are no message.
    """
    at = 0
    while at < len(message):
        begin = at
        tag, at = _varint(message, at)
        content, kind = at, tag & 7
        if kind == _BYTES:
            length, content = _varint(message, at)
            at = content + length
        elif kind == _VARINT:
            _, at = _varint(message, at)
        elif kind in _FIXED:
            at += _FIXED[kind]
        else:
            raise ValueError(f"a field of the unknown kind {kind}")
        if at > len(message):
            raise ValueError("a field is cut off")
        yield tag >> 3, message[content:at], message[begin:at]


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """Return a number, and where it ends."""
    value = shift = 0
    while at < len(message) and shift < 70:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
    raise ValueError("a number is cut off")


def _encoded(number: int) -> bytes:
    number &= _MASK
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _varint_field(number: int, value: int) -> bytes:
    return _encoded(number << 3 | _VARINT) + _encoded(value)


def _bytes_field(number: int, content: bytes) -> bytes:
    return _encoded(number << 3 | _BYTES) + _encoded(len(content)) + content
