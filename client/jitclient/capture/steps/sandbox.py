"""Environment of captured code: its own builtins and its own user modules.

User modules of the capture are imported in private; all other modules are those of this process. The sandbox is no
security boundary, because a capture is trusted code. Its purpose is to keep user modules out of `sys.modules` and to
raise an error at each read of an ambient input.
"""

import builtins
import importlib.util
import numbers
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from jitclient.capture.ambient.audit import frames
from jitclient.capture.ambient.inputs import message_of, reads, record_read
from jitclient.capture.ambient.traps import Trap, guarded
from jitclient.capture.steps import captured
from jitclient.capture.user_code.installed import is_user_module
from jitclient.errors import AmbientInput


class Sandbox:
    """Builtins and user modules of one load."""

    def __init__(self) -> None:
        self._modules: dict[str, ModuleType] = {}
        self._builtins = {**vars(builtins), "__import__": self._import, "hash": _hash, "id": _id}
        self._builtins.update((name, Trap(True, message_of(name))) for name in ("open", "input"))

    def new_module(self) -> ModuleType:
        """Return an empty module that only this load knows."""
        module = ModuleType(captured.__name__)
        module.__dict__["__builtins__"] = self._builtins
        return module

    def add_module(self, name: str, module: ModuleType) -> None:
        """Add a user module that captured code imports by name."""
        self._modules[name] = module

    def _import(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        if level:
            names = globals or {}
            package = names.get("__package__") or names["__name__"]
            name = importlib.util.resolve_name("." * level + name, package)
        if name in self._modules:
            return self._modules[name if fromlist else name.partition(".")[0]]
        if is_user_module(name):
            # The module was not found when the function was captured, either.
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return guarded(builtins.__import__(name, globals, locals, fromlist or (), 0))


_COMPARISON_METHODS = frozenset({"__hash__", "__eq__", "__ne__"})


def _hash(obj: object, /) -> int:
    """Replace the builtin `hash` in captured code; refuse hashes that differ between processes.

    A hash is allowed where code uses it to compare objects, which has the same result in every process.
    """
    if _has_seeded_hash(obj):
        _read("hash")
    return hash(obj)


def _id(obj: object, /) -> int:
    _read("id")
    return id(obj)


def _has_seeded_hash(obj: object) -> bool:
    """Return whether a hash differs between processes, or a user's class may make it differ."""
    if isinstance(obj, tuple | frozenset):
        return any(map(_has_seeded_hash, obj))
    return not isinstance(obj, numbers.Number)


def _read(name: str) -> None:
    """Raise if a trace is noting reads, unless a method that compares objects is on the stack."""
    if reads.noted is None or any(frame.f_code.co_name in _COMPARISON_METHODS for frame in frames()):
        return
    record_read(message_of(name))
    raise AmbientInput(message_of(name))
