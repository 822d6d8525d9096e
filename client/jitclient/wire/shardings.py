"""Shardings as messages. A device is its position among those of the process that reads the message."""

from typing import Annotated

import msgspec

_Axes = msgspec.Meta(max_length=64)
_Devices = msgspec.Meta(max_length=1 << 14)

Axes = str | Annotated[tuple[str, ...], _Axes] | None


class Mesh(msgspec.Struct, array_like=True, frozen=True):
    """Mesh of devices with named axes; abstract if it has no devices."""

    axes: Annotated[tuple[tuple[str, int], ...], _Axes]
    types: Annotated[tuple[str, ...], _Axes]  # "Auto", "Explicit", "Manual"
    devices: Annotated[tuple[int, ...], _Devices]
    platform: str = ""  # if not that of the default devices


class Sharding(msgspec.Struct, array_like=True, frozen=True):
    """Partition over a mesh, or over the current one if `mesh` is None; a single device is a mesh without axes."""

    mesh: Mesh | None
    spec: Annotated[tuple[Axes, ...], _Devices] = ()
    memory: str | None = None


class Outputs(msgspec.Struct, array_like=True, frozen=True):
    """Shardings of results: a prefix of their tree, and its leaves."""

    tree: bytes  # encoded by `jaxside.tree`
    leaves: Annotated[tuple[Sharding | None, ...], _Devices]


class JitShardings(msgspec.Struct, array_like=True, frozen=True):
    """Shardings in the keywords of jit: of the arguments' leaves, and of the results."""

    inputs: Annotated[tuple[Sharding | None, ...], _Devices] | None = None
    outputs: Outputs | None = None
