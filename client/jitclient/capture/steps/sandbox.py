"""Environment of captured code: its own builtins and its own user modules.

User modules of the capture are imported in private; all other modules are those of this process. The sandbox is no
security boundary, because a capture is trusted code. Its purpose is to keep user modules out of `sys.modules` and to
raise an error at each read of an ambient input.
"""

import builtins
import importlib.util
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType, ModuleType
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
        self._sources: dict[str, Source] = {}
        self._aliases: dict[str, ModuleType] = {}
        self._builtins = {**vars(builtins), "__import__": self._import, "hash": _hash, "id": _id}
        self._builtins.update((name, Trap(True, message_of(name))) for name in ("open", "input"))

    def new_module(self) -> ModuleType:
        """Return an empty module that only this load knows."""
        module = ModuleType(captured.__name__)
        module.__dict__["__builtins__"] = self._builtins
        return module

    def add_source(self, source: "Source") -> None:
        """Add a user module that captured code imports by name; it runs at its first import."""
        self._sources[source.name] = source
        if source.is_package:
            source.module.__class__ = _Package
            vars(source.module)["__sandbox__"] = self

    def add_alias(self, name: str, module: ModuleType) -> None:
        """Add a user module without source, importable by name."""
        self._aliases[name] = module

    def has(self, name: str) -> bool:
        """Return whether the capture contains a user module of that name."""
        return name in self._sources or name in self._aliases

    def module(self, name: str) -> ModuleType:
        """Return a user module of the capture; run its source first if it has not run."""
        if name not in self._sources:
            return self._aliases[name]
        parent, _, leaf = name.rpartition(".")
        # The parent runs first, and may import this module.
        above = self.module(parent) if parent in self._sources else None
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
                # The module was not found when the function was captured, either.
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            return guarded(builtins.__import__(name, globals, locals, fromlist or (), 0))
        module = self.module(name)
        if not fromlist:
            return self.module(name.partition(".")[0])
        for wanted in [*fromlist, *(getattr(module, "__all__", ()) if "*" in fromlist else ())]:
            getattr(module, wanted, None)
        return module


class _Package(ModuleType):
    """Package whose submodules are available as attributes.

    Code outside the capture may have imported them in the client. In circular imports, Python binds a submodule only
    after it has run.
    """

    def __getattr__(self, name: str) -> Any:
        here = vars(self)
        full = f"{here['__name__']}.{name}"
        if here["__sandbox__"].has(full):
            return here["__sandbox__"].module(full)
        raise AttributeError(f"module {here['__name__']!r} has no attribute {name!r}", name=name, obj=self)


@dataclass
class Source:
    """User module whose source is part of the capture."""

    name: str
    is_package: bool
    code: CodeType
    module: ModuleType
    gone: list[str]
    """Names that the source binds but that were deleted from the client's module afterwards."""
    has_begun: bool = False
    rebound: dict[str, Any] = field(default_factory=dict)
    """Name -> value of the client's module, where it differs from the source's value."""

    def run(self) -> None:
        """Run the module's body, then restore the values that the client's module had."""
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
        except BaseException:
            # The next import runs the body again.
            names.clear()
            names.update(before)
            self.has_begun = False
            raise
        names.update(self.rebound)
        for name in self.gone:
            names.pop(name, None)


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
