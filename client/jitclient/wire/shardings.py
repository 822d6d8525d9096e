"""How arrays lie on devices, as messages. A device is named by its position among those of the process that reads."""

import msgspec

Axes = str | tuple[str, ...] | None


class Mesh(msgspec.Struct, array_like=True, frozen=True):
    """Devices by the names of their axes. One without devices is abstract."""

    axes: tuple[tuple[str, int], ...]
    types: tuple[str, ...]  # of the axes: "Auto", "Explicit", "Manual"
    devices: tuple[int, ...]
    platform: str = ""  # where it is not that of the default devices


class Sharding(msgspec.Struct, array_like=True, frozen=True):
    """A partition over a mesh, or over the mesh in force where it has none; or one device, a mesh without axes."""

    mesh: Mesh | None
    spec: tuple[Axes, ...] = ()
    memory: str | None = None


class Outputs(msgspec.Struct, array_like=True, frozen=True):
    """Shardings of results: a prefix of their tree, and its leaves."""

    tree: bytes  # of `trees.tree`
    leaves: tuple[Sharding | None, ...]


class JitShardings(msgspec.Struct, array_like=True, frozen=True):
    """What the keywords of jit say of the arguments' leaves and of the results."""

    inputs: tuple[Sharding | None, ...] | None = None
    outputs: Outputs | None = None
