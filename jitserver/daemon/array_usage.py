"""Accounting of the daemon's arrays by the names and sessions that hold them."""

from collections.abc import Iterable, Mapping
from typing import Any

from jitclient.wire.array_transport import nbytes_of
from jitclient.wire.named_arrays import Holdings, KeptInfo, Made, Owned
from jitserver.daemon.arrays.named_arrays import NamedArrays, NamedTree
from jitserver.daemon.sessions.session import DaemonSession
from jitserver.programs.devices.memories import bytes_of, data_bytes_of
from jitserver.system.process_watch import program_of

_MOST_MADE = 100
"""How many functions of a session the description has. The others are one row."""


def usage(
    kept: NamedArrays, sessions: Iterable[DaemonSession], limit: int | None = None, memory: int | None = None
) -> Holdings:
    """Return all holders of arrays, the largest first. An array under a name does not count for sessions.

    Args:
        kept: the named arrays.
        sessions: the live sessions.
        limit: the memory budget in bytes; None: no limit.
        memory: the only memory in which arrays count; None: all count.
    """
    found: dict[int, Any] = {}  # keeps the arrays alive, so that each id is unique

    def count(arrays: Iterable[Any]) -> dict[int, int]:
        new = {id(array): array for array in arrays if id(array) not in found}
        found.update(new)
        here = {key: _bytes(array, memory) for key, array in new.items()}
        return {key: nbytes for key, nbytes in here.items() if nbytes is not None}

    trees = kept.all()
    total = sum(sum(count(tree.arrays).values()) for tree in trees.values())
    owners = []
    for session in sessions:
        counted = count(session.held())
        nbytes = sum(counted.values())
        total += nbytes
        program = session.program or _program(session.pid)
        away = f", away for {absence}" if (absence := session.presence.absence()) else ""
        owners.append(Owned(session.pid, program + away, len(counted), nbytes, _made(session, counted)))
    return Holdings(
        nbytes=total,
        most_nbytes=limit,
        kept=sorted((info(name, tree, memory) for name, tree in trees.items()), key=lambda one: -one.nbytes),
        sessions=sorted(owners, key=lambda one: -one.nbytes),
    )


def _made(session: DaemonSession, counted: Mapping[int, int]) -> list[Made]:
    """Return what made a session's arrays, the largest first, from the bytes of each by its id."""
    found: dict[tuple[str, str], list[int]] = {}
    left = dict(counted)
    for handle, array in dict(session.arrays).items():
        if (nbytes := left.pop(id(array), None)) is not None:
            found.setdefault(session.maker_of(handle), []).append(nbytes)
    made = [Made(*maker, len(sizes), sum(sizes)) for maker, sizes in found.items()]
    made.sort(key=lambda one: -one.nbytes)
    made, others = made[:_MOST_MADE], made[_MOST_MADE:]
    if others:
        arrays, nbytes = sum(one.arrays for one in others), sum(one.nbytes for one in others)
        made.append(Made(f"{len(others)} other functions", "", arrays, nbytes))
    return made


def info(name: str, tree: NamedTree, memory: int | None = None) -> KeptInfo:
    """Return the description of a named tree for lists and messages; `memory` is that of `usage`."""
    return KeptInfo(
        name=name,
        label=tree.label,
        arrays=len(tree.specs),
        nbytes=_nbytes(tree, memory),
        created=tree.created,
        last_used=tree.last_used,
        ttl=tree.ttl,
        why_lost=tree.why_lost,
    )


def _nbytes(tree: NamedTree, memory: int | None) -> int:
    if tree.on_disk is not None and not tree.why_lost:
        return sum(map(nbytes_of, tree.specs)) if memory is None else 0
    different = {id(array): array for array in tree.arrays}.values()
    return sum(_bytes(array, memory) or 0 for array in different)


def _bytes(array: Any, memory: int | None) -> int | None:
    """Return what an array counts for in a memory, None if it is not there; or the bytes of its data in all."""
    return sum(data_bytes_of(array).values()) if memory is None else bytes_of(array).get(memory)


def is_held(tree: NamedTree, sessions: Iterable[DaemonSession]) -> bool:
    """Return whether a session has a handle on one of the tree's arrays, in memory or on disk."""
    wanted = tree.identities()
    return any(not wanted.isdisjoint(session.identities()) for session in sessions)


def _program(pid: int) -> str:
    return (program_of(pid) or "?") if pid else "on another machine"
