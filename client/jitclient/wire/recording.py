"""Messages for recordings of a daemon's work with XLA's profiler, and of its memory.

A recording belongs to its connection: it ends when it is fetched, or when the connection closes.
"""

from typing import Annotated

from jitclient.wire.messages import Items, Message

PART_BYTES = 8 << 20
"""Size of the parts in which a recording is fetched; the last part is smaller."""


class Record(Message):
    """Request to record what the daemon does from now on, with these options of `jax.profiler.ProfileOptions`."""

    host_tracer_level: int = 2
    enable_hlo_proto: bool = True
    advanced_configuration: Annotated[dict[str, bool | int | str], Items] = {}


class Recorded(Message):
    """Recording: an XSpace, and the same for Perfetto, as gzipped JSON."""

    host: str
    xspace: bytes
    trace: bytes


class Annotation(Message):
    """Begin of an annotation of the client's, in the order of the calls; without a `name`, its end.

    The client numbers its annotations.
    """

    number: int
    name: str = ""
    metadata: Annotated[dict[str, str], Items] = {}
