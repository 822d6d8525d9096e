"""Envelope of a large request: rpyc's encoding, of which only the payload at its end may be large.

rpyc decodes item by item, each of which takes up to seventy times its bytes.
"""

from typing import Any

from rpyc.core import brine

from jitclient.errors import ProtocolError

_MAX_BYTES = 64
_LENGTH_BYTES = 4


def decoded_request(data: bytes) -> tuple[Any, Any]:
    """Decode a request of rpyc's whose last argument is a payload of more than 255 bytes.

    Returns:
        What `brine.load` returns: the sequence number, and the request.

    Raises:
        ProtocolError: the data is something else.
    """
    for end in range(_MAX_BYTES):
        start = end + 1 + _LENGTH_BYTES
        nbytes = int.from_bytes(data[end + 1 : start], "big")
        if data[end : end + 1] == brine.TAG_STR_L4 and nbytes == len(data) - start:
            number, (handler, (label, (*arguments, _))) = brine.load(data[:end] + brine.TAG_EMPTY_STR)
            return number, (handler, (label, (*arguments, data[start:])))
    raise ProtocolError(f"a request of {len(data):,} bytes is none of ours")
