"""The memories that hold arrays: that of each accelerator, by the device's position, and that of the host.

Arrays of the CPU, and arrays of a memory kind such as `pinned_host`, are in the host's.
"""

import collections
import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import msgspec

from jitclient.errors import ProtocolError
from jitclient.jaxside import shardings
from jitclient.wire.array_transport import nbytes_of
from jitclient.wire.messages import Spec
from jitclient.wire.shardings import Sharding
from jitserver.programs.devices.backend import backend

HOST = -1
"""Number of the host's memory."""

Bytes = Mapping[int, int]
"""Numbers of bytes, by the number of the memory."""

LEAST_BYTES = 4096
"""Each array counts for as much at least: what describes it takes 2 to 4 KiB of the daemon, however small it is."""


@dataclasses.dataclass(frozen=True)
class Memory:
    """A memory that holds arrays.

    Attributes:
        number: the position of the device among `jax.devices()`, or HOST.
        where: the text for messages; empty if there is no other memory.
        nbytes: its size; None if the device does not report it, and for the host's.
    """

    number: int
    where: str
    nbytes: int | None


def of_process() -> list[Memory]:
    """Return the memories of this process, that of the default device first."""
    if backend().shares_host_memory:
        return [Memory(HOST, "", None)]
    sizes = [(device.memory_stats() or {}).get("bytes_limit") for device in jax.devices()]
    found = [Memory(n, f"on {each.platform}:{each.id}", sizes[n]) for n, each in enumerate(jax.devices())]
    return [*found, Memory(HOST, "in the host's memory", None)]


def default() -> int:
    """Return the number of the memory of arrays that were not placed explicitly."""
    return HOST if backend().shares_host_memory else 0


def bytes_of(array: jax.Array) -> Bytes:
    """Return the bytes that an array counts for in each memory."""
    return {memory: max(nbytes, LEAST_BYTES) for memory, nbytes in data_bytes_of(array).items()}


def data_bytes_of(array: jax.Array) -> Bytes:
    """Return the bytes that the data of an array takes in each memory."""
    sharding = array.sharding
    places = _places(sharding)
    if len(places) == 1:
        return {places[0]: int(array.nbytes)}
    return _on_each(places, math.prod(sharding.shard_shape(array.shape)) * array.dtype.itemsize)


def bytes_of_specs(specs: Iterable[Spec]) -> Bytes:
    """Return the bytes that arrays with these specs count for in each memory."""
    total = collections.Counter[int]()
    for spec in specs:
        try:
            total.update(_bytes_of_spec(spec))
        except ProtocolError:  # float0 has no bytes
            continue
    return dict(total)


def bytes_at(nbytes: int, shape: tuple[int, ...], place: Sharding | None) -> Bytes:
    """Return what an array of `nbytes` bytes and this shape counts for in each memory, with this sharding."""
    if place is None or place.mesh is None:
        return {default(): max(nbytes, LEAST_BYTES)}
    sharding = shardings.to_jax(place)
    places = _places(sharding)
    part = nbytes if len(places) == 1 else nbytes * math.prod(sharding.shard_shape(shape)) // (math.prod(shape) or 1)
    return {memory: max(total, LEAST_BYTES) for memory, total in _on_each(places, part).items()}


def _bytes_of_spec(spec: Spec) -> Bytes:
    return bytes_at(nbytes_of(msgspec.structs.replace(spec, sharding=None)), spec.shape, spec.sharding)


def _on_each(places: tuple[int, ...], nbytes: int) -> Bytes:
    return {memory: nbytes * count for memory, count in collections.Counter(places).items()}


@functools.lru_cache(maxsize=1024)
def _places(sharding: Any) -> tuple[int, ...]:
    """Return the number of the memory of each device of a sharding."""
    return tuple([_place(device, sharding.memory_kind) for device in sharding.device_set])


def _place(device: Any, kind: str | None) -> int:
    is_on_host = kind is not None and kind != device.default_memory().kind and "host" in kind
    # The CPU's devices are not among the others.
    return HOST if is_on_host or backend().shares_host_memory else _positions().get(device, HOST)


@functools.cache
def _positions() -> Mapping[Any, int]:
    return {device: n for n, device in enumerate(jax.devices())}
