"""Shardings as messages. A device is its position among those of the process that reads the message."""

import msgspec

Axes = str | tuple[str, ...] | None


class Mesh(msgspec.Struct, array_like=True, frozen=True):
    """Mesh of devices with named axes; abstract if it has no devices."""

    axes: tuple[tuple[str, int], ...]
    types: tuple[str, ...]  # of the axes: "Auto", "Explicit", "Manual"
    devices: tuple[int, ...]
    platform: str = ""  # if not that of the default devices


class Sharding(msgspec.Struct, array_like=True, frozen=True):
    """Partition over a mesh, or over the current one if `mesh` is None; a single device is a mesh without axes."""

    mesh: Mesh | None
    spec: tuple[Axes, ...] = ()
    memory: str | None = None


class Outputs(msgspec.Struct, array_like=True, frozen=True):
    """Shardings of results: a prefix of their tree, and its leaves."""

    tree: bytes  # encoded by `jaxside.tree`
    leaves: tuple[Sharding | None, ...]


class JitShardings(msgspec.Struct, array_like=True, frozen=True):
    """Shardings in the keywords of jit: of the arguments' leaves, and of the results."""

    inputs: tuple[Sharding | None, ...] | None = None
    outputs: Outputs | None = None
