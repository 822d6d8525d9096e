"""Messages for recordings of a daemon's work with XLA's profiler, and of its memory.

A recording belongs to its connection: it ends when it is fetched, or when the connection closes.
"""

from typing import Annotated

from jitclient.wire.messages import Items, Message

PART_BYTES = 8 << 20
"""Size of the parts in which a recording is fetched."""


class Record(Message):
    """Request to record what the daemon does from now on, with these options of `jax.profiler.ProfileOptions`."""

    host_tracer_level: int = 2
    enable_hlo_proto: bool = True
    advanced_configuration: Annotated[dict[str, bool | int | str], Items] = {}


class Fetch(Message):
    """Request for the bytes of the connection's recording from `start` on. The first one ends the recording."""

    start: int


class Fetched(Message):
    """Part of an encoded list of `Recorded`, which has `nbytes` bytes."""

    nbytes: int
    part: bytes


class Recorded(Message):
    """Part of a recording, between two moments: an XSpace, and the same for Perfetto, as gzipped JSON.

    A recording has several if other recordings began or ended meanwhile. The XSpace is empty, and `why` has the reason,
    if the profiler failed.
    """

    host: str
    xspace: bytes = b""
    trace: bytes = b""
    why: str = ""


class Annotation(Message):
    """Begin of an annotation of the client's, in the order of the calls; without a `name`, its end.

    The client numbers its annotations.
    """

    number: int
    name: str = ""
    metadata: Annotated[dict[str, str], Items] = {}
