"""Modules that a helper has imported: a run finds each of them when it imports it, as if it was imported then.

Until then they are hidden: `sys.modules` has what a process has that has imported nothing. When a program imports a
module, the module appears with all that its import imports, if the import would do now what it did in the helper. If it
would not, because the program has changed a variable that the import reads, say, the program starts again in a fresh
process (`fresh_start.py`).
"""

import contextlib
import importlib.abc
import importlib.machinery
import os
import sys
import tempfile
import types
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

from jitclient.capture.user_code.installed import OWN_PACKAGES, HidesModules, stored
from jitclient.jaxside import interop
from jitserver.run import fast_exit
from jitserver.run.additions import AuditHooks, Finders, Loggers, add_filter
from jitserver.run.conditions import Conditions
from jitserver.run.verdict import Verdict

_PART_OF_PYTHON = ("built-in", "frozen")
_NATIVE = tuple(importlib.machinery.EXTENSION_SUFFIXES)


class Preloaded(HidesModules):
    """Modules that this process has imported in advance, and the finder of their imports by the program.

    Attributes:
        verdict: what the audit has found about the imports.
        modules: names of the modules that were imported.
        finders: finders that the imports have added.
        hooks: audit hooks that the imports have registered.
    """

    def __init__(self, terminal: bool) -> None:
        """Hide nothing yet.

        Args:
            terminal: whether the imports see the standard streams as terminals.
        """
        self.verdict = Verdict()
        self.modules: set[str] = set()
        self.finders = Finders()
        self.hooks = AuditHooks()
        self._loggers = Loggers()
        self._terminal = terminal
        self._hidden: dict[str, Any] = {}
        self._bindings: dict[str, tuple[dict[str, Any], str]] = {}
        self._conditions = Conditions()
        self._on_difference: Callable[[str], None] | None = None
        before = sys.meta_path.index(PathFinder) if PathFinder in sys.meta_path else len(sys.meta_path)
        sys.meta_path.insert(before, self)

    def __contains__(self, name: object) -> bool:
        """Return whether a module, or a module of a package, was imported in advance and is hidden."""
        return name in self._hidden

    # ---- in the helper

    def hide(self) -> None:
        """Hide the modules whose imports were recorded.

        Code of the helper may import a hidden module, which shows it, so this must be called again before a run.
        """
        for name, module in dict(sys.modules).items():
            if name not in self.modules or name.partition(".")[0] in OWN_PACKAGES:
                continue
            spec = stored(module, "__spec__")
            # Native code makes modules without a spec, and looks for them before it makes another.
            if isinstance(module, types.ModuleType) and (spec is None or spec.origin in _PART_OF_PYTHON):
                continue
            self._hidden[name] = sys.modules.pop(name)
            parent, _, attribute = name.rpartition(".")
            if spec is None or spec.name != name:
                # Another object that the package put there, without an import.
                self.verdict.add_import(parent, [name])
            holder = self._hidden.get(parent, sys.modules.get(parent))
            if isinstance(holder, types.ModuleType) and vars(holder).get(attribute) is module:
                self._bindings[name] = vars(holder), attribute
                del vars(holder)[attribute]
        self.finders.hide(self._hidden)
        self._loggers.hide()

    @contextlib.contextmanager
    def visible(self) -> Iterator[None]:
        """Show all modules within a block."""
        self._show(list(self._hidden))
        self.finders.show()
        self._loggers.show()
        try:
            yield
        finally:
            self.hide()

    # ---- in a run

    def serve(self, on_difference: Callable[[str], None]) -> None:
        """Let this process, that of a run, import the modules.

        Args:
            on_difference: is called with the reason if an import would not do now what it did in the helper. If it
                returns, the program gets what the helper has imported.
        """
        self._on_difference = on_difference
        fast_exit.keep(self._hidden)
        self._conditions = Conditions()

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec that Python's own finders have for a hidden module, with a loader that shows it."""
        module = self._hidden.get(name)
        if module is None:
            return None
        spec = self._own_spec(name, path, target)
        if spec is None or spec.loader is None or isinstance(spec.loader, type):
            spec = ModuleSpec(name, _Loader(), is_package=hasattr(module, "__path__"))
        loader: Any = spec.loader

        def create_module(spec: ModuleSpec) -> Any:
            self._import(name)
            return module

        def exec_module(_: Any) -> None:
            for method in ("create_module", "exec_module"):
                vars(loader).pop(method, None)

        loader.create_module, loader.exec_module = create_module, exec_module
        return spec

    def _own_spec(self, name: str, path: Sequence[str] | None, target: Any) -> ModuleSpec | None:
        later = sys.meta_path[sys.meta_path.index(self) + 1 :]
        found = (finder.find_spec(name, path, target) for finder in later)
        return next((spec for spec in found if spec is not None), None)

    def _import(self, name: str) -> None:
        names = [each for each in self.verdict.closure(name) if each in self._hidden]
        if self._on_difference is None:
            self._show(names)
            return
        written, reason = self._check(name, names)
        if reason:
            self._on_difference(reason)
        for variable, value in written.items():
            if value is None:
                os.environ.pop(variable, None)
            else:
                os.environ[variable] = value
        self._show(names)
        self._loggers.show_for(self.verdict, {*names})
        for each in self.verdict.filters:
            if each.module in names:
                add_filter(each)
        self._conditions.allow(written, self.finders.show_for(names))
        self.hooks.show_for(names)
        if not {*names}.isdisjoint(self.verdict.temporary):
            tempfile.gettempdir()
        interop.have_loaded(names)

    def _show(self, names: Sequence[str]) -> None:
        for name in names:
            # Another thread may have shown it.
            if name in self._hidden:
                sys.modules[name] = self._hidden.pop(name)
                if name in self._bindings:
                    namespace, attribute = self._bindings.pop(name)
                    namespace.setdefault(attribute, sys.modules[name])

    def _check(self, name: str, names: Sequence[str]) -> tuple[dict[str, str | None], str]:
        """Return the variables that the imports of modules set, and why the imports would do something else now."""
        other = next((each for each in names if each in sys.modules), "") or self._shadowed(names)
        if other:
            return {}, f"{other} is not the module that the helper has imported"
        files = self.verdict.finds_other_files(".")
        if files:
            return {}, f"imports read {files} in the working directory"
        terminals = self.verdict.differs_in_terminals({*names}, self._terminal)
        if terminals:
            return {}, terminals
        written, variable = self.verdict.replay({*names}, os.environ)
        if variable:
            return {}, f"environment variable {variable} differs from its value when the helper imported {name}"
        logger = self._loggers.differs(self.verdict, {*names})
        if logger:
            return {}, logger
        packages = {each.partition(".")[0] for each in names} - sys.stdlib_module_names
        native = {each.partition(".")[0] for each in names if self._is_native(each)} & packages
        changed = self._conditions.changed(packages, native)
        return written, f"the program has changed {changed}" if changed else ""

    def _is_native(self, name: str) -> bool:
        return str(stored(self._hidden[name], "__file__")).endswith(_NATIVE)

    def _shadowed(self, names: Sequence[str]) -> str:
        """Return a module that the program's import path or finders have elsewhere; empty if there is none."""
        for top in dict.fromkeys(name.partition(".")[0] for name in names):
            spec, own = PathFinder.find_spec(top), stored(self._hidden.get(top), "__spec__")
            if own is not None and spec is not None and spec.origin != own.origin:
                return top
        for finder in self._conditions.new_finders():
            for name in names:
                parent = self._hidden.get(name.rpartition(".")[0])
                if finder.find_spec(name, stored(parent, "__path__"), None) is not None:
                    return name
        return ""


class _Loader(importlib.abc.Loader):
    """Loader of modules that no finder of Python knows, or for which its loader is a class."""
