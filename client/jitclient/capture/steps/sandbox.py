"""What captured code sees in place of the world: its own builtins, and its own modules.

User modules that travelled are imported in private; all others are those of this process. Nothing here is a security
boundary: a capture is trusted code. It keeps user modules out of `sys.modules`, and makes a read of an ambient input
an error at the moment it happens.
"""

import builtins
import importlib.util
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType, ModuleType
from typing import Any

from jitclient.capture.ambient.inputs import message_of, note_read, reads
from jitclient.capture.ambient.traps import Trap, guarded
from jitclient.capture.ambient.world import frames
from jitclient.capture.steps import captured
from jitclient.capture.user_code.installed import is_user_module
from jitclient.errors import AmbientInput


class Sandbox:
    """The builtins and the user modules of one load."""

    def __init__(self) -> None:
        self._sources: dict[str, Source] = {}
        self._aliases: dict[str, ModuleType] = {}
        self._builtins = {**vars(builtins), "__import__": self._import, "hash": _hash, "id": _id}
        self._builtins.update((name, Trap(True, message_of(name))) for name in ("open", "input"))

    def new_module(self) -> ModuleType:
        """An empty module that only this load knows."""
        module = ModuleType(captured.__name__)
        module.__dict__["__builtins__"] = self._builtins
        return module

    def add_source(self, source: "Source") -> None:
        """Add a user module that captured code imports by name; it runs when it is first imported."""
        self._sources[source.name] = source
        if source.is_package:
            source.module.__class__ = _Package
            vars(source.module)["__sandbox__"] = self

    def add_alias(self, name: str, module: ModuleType) -> None:
        """Add a user module without source, importable by name."""
        self._aliases[name] = module

    def has(self, name: str) -> bool:
        """Whether a user module of that name travelled."""
        return name in self._sources or name in self._aliases

    def module(self, name: str) -> ModuleType:
        """A user module that travelled, whether it has been imported or not."""
        if name not in self._sources:
            return self._aliases[name]
        parent, _, leaf = name.rpartition(".")
        above = self.module(parent) if parent in self._sources else None  # it may import this one
        source = self._sources[name]
        if not source.has_begun:
            source.run()
            if above is not None and leaf not in self._sources[parent].rebound:
                setattr(above, leaf, source.module)
        return source.module

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
        if not self.has(name):
            if is_user_module(name):
                # it was not there either when the function was captured
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            return guarded(builtins.__import__(name, globals, locals, fromlist or (), 0))
        module = self.module(name)
        if not fromlist:
            return self.module(name.partition(".")[0])
        for wanted in [*fromlist, *(getattr(module, "__all__", ()) if "*" in fromlist else ())]:
            getattr(module, wanted, None)
        return module


class _Package(ModuleType):
    """Has its submodules as attributes: something that did not travel may have imported them, and in a circle of
    imports they are not bound before they have run.
    """

    def __getattr__(self, name: str) -> Any:
        here = vars(self)
        full = f"{here['__name__']}.{name}"
        if here["__sandbox__"].has(full):
            return here["__sandbox__"].module(full)
        raise AttributeError(f"module {here['__name__']!r} has no attribute {name!r}", name=name, obj=self)


@dataclass
class Source:
    """A user module that travels as code."""

    name: str
    is_package: bool
    code: CodeType
    module: ModuleType
    gone: list[str]
    """Names that the code binds, and that were deleted from the module afterwards."""
    has_begun: bool = False
    rebound: dict[str, Any] = field(default_factory=dict)
    """What differed in the client from what the code gives."""

    def run(self) -> None:
        """Run the module's body; what was rebound in the client stays."""
        names = vars(self.module)
        before = dict(names)
        self.has_begun = True
        self.rebound = {name: value for name, value in names.items() if not name.startswith("__")}
        names["__name__"] = self.name
        names["__package__"] = self.name if self.is_package else self.name.rpartition(".")[0]
        names.setdefault("__file__", self.code.co_filename)
        if self.is_package:
            names.setdefault("__path__", [])
        try:
            exec(self.code, names)
        except BaseException:  # the next import tries again
            names.clear()
            names.update(before)
            self.has_begun = False
            raise
        names.update(self.rebound)
        for name in self.gone:
            names.pop(name, None)


_TELL_APART = frozenset({"__hash__", "__eq__", "__ne__"})


def _hash(obj: object, /) -> int:
    """The builtin. Where code uses hashes to tell things apart, it does the same in every process."""
    if _has_seeded_hash(obj):
        _read("hash")
    return hash(obj)


def _id(obj: object, /) -> int:
    _read("id")
    return id(obj)


def _has_seeded_hash(obj: object) -> bool:
    """Whether a hash differs between processes, or a user's class decides that."""
    if isinstance(obj, tuple | frozenset):
        return any(map(_has_seeded_hash, obj))
    return not isinstance(obj, numbers.Number)


def _read(name: str) -> None:
    """Refuse a read during a trace, unless a method that says whether objects are the same is at work."""
    if reads.noted is None or any(frame.f_code.co_name in _TELL_APART for frame in frames()):
        return
    note_read(message_of(name))
    raise AmbientInput(message_of(name))
