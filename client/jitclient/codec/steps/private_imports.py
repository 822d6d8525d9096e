"""Imports of captured code: user modules that travelled run in private, all others are those of this process."""

import builtins
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType, ModuleType
from typing import Any

from jitclient.codec.ambient.traps import guarded
from jitclient.codec.user_code.installed import is_user_module


class PrivateImports:
    """The user modules of one load, by name, and the `__import__` that finds them."""

    def __init__(self) -> None:
        self._sources: dict[str, Source] = {}
        self._aliases: dict[str, ModuleType] = {}

    def add(self, name: str, source: "Source") -> None:
        """A user module that captured code imports by name; it runs when it is first imported."""
        self._sources[name] = source
        if source.is_package:
            source.module.__class__ = _Package
            vars(source.module)["__imports__"] = self

    def add_alias(self, name: str, module: ModuleType) -> None:
        """A user module without source, importable by name."""
        self._aliases[name] = module

    def has(self, name: str) -> bool:
        """Whether a user module of that name travelled."""
        return name in self._sources or name in self._aliases

    def import_(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        """What captured code has as `__import__`."""
        if level:
            names = globals or {}
            package = names.get("__package__") or names["__name__"]
            name = importlib.util.resolve_name("." * level + name, package)
        if self.has(name):
            return self._import_private(name, fromlist or ())
        if is_user_module(name):
            # it was not there either when the function was captured
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return guarded(builtins.__import__(name, globals, locals, fromlist or (), 0))

    def _import_private(self, name: str, fromlist: Sequence[str]) -> ModuleType:
        module = self.module(name)
        for wanted in [*fromlist, *(getattr(module, "__all__", ()) if "*" in fromlist else ())]:
            getattr(module, wanted, None)
        return module if fromlist else self.module(name.partition(".")[0])

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


class _Package(ModuleType):
    """Has its submodules as attributes: something that did not travel may have imported them, and in a circle of
    imports they are not bound before they have run.
    """

    def __getattr__(self, name: str) -> Any:
        here = vars(self)
        full = f"{here['__name__']}.{name}"
        if here["__imports__"].has(full):
            return here["__imports__"].module(full)
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
