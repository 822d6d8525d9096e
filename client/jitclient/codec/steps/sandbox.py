"""What captured code sees in place of the world: its own builtins, imports and modules.

Nothing here is a security boundary: a capture is trusted code. It keeps user modules out of
`sys.modules`, and makes a read of an ambient input an error at the moment it happens.
"""

import builtins
import numbers
import types
from typing import Any

from jitclient.codec.ambient.inputs import message_of, note_read, reads
from jitclient.codec.ambient.traps import Trap
from jitclient.codec.ambient.world import frames
from jitclient.codec.steps import captured
from jitclient.codec.steps.private_imports import PrivateImports
from jitclient.errors import AmbientInput


class Sandbox:
    """The builtins and the user modules of one load."""

    def __init__(self) -> None:
        self.imports = PrivateImports()
        self.builtins: dict[str, Any] = {**vars(builtins), "__import__": self.imports.import_}
        for name in ("open", "input"):
            self.builtins[name] = Trap(True, message_of(name))
        self.builtins.update(hash=_hash, id=_id)

    def new_module(self) -> types.ModuleType:
        """An empty module that only this load knows."""
        module = types.ModuleType(captured.__name__)
        module.__dict__["__builtins__"] = self.builtins
        return module


_TELL_APART = frozenset({"__hash__", "__eq__", "__ne__"})


def _hash(obj: object, /) -> int:
    """The builtin. Where code uses hashes to tell things apart, it does the same in every process."""
    if _has_seeded_hash(obj) and not _is_to_tell_apart():
        _read("hash")
    return hash(obj)


def _id(obj: object, /) -> int:
    if not _is_to_tell_apart():
        _read("id")
    return id(obj)


def _has_seeded_hash(obj: object) -> bool:
    """Whether a hash differs between processes, or a user's class decides that."""
    if isinstance(obj, tuple | frozenset):
        return any(map(_has_seeded_hash, obj))
    return not isinstance(obj, numbers.Number)


def _is_to_tell_apart() -> bool:
    """Whether a method that says whether objects are the same is at work."""
    return any(frame.f_code.co_name in _TELL_APART for frame in frames())


def _read(name: str) -> None:
    if reads.noted is None:
        return  # nothing is being traced: what loads a capture makes objects of this process
    note_read(message_of(name))
    raise AmbientInput(message_of(name))
