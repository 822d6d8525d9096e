"""Graph of imports: which modules the import of each module imports."""

import builtins
import importlib.util
import sys
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from itertools import islice
from types import CodeType
from typing import Any

from jitserver.run.replacement import Replacement

_bootstrap: Any = importlib._bootstrap
"""Python's own import system, in which `importlib.import_module` looks up its function."""

_ModuleSpec: Any = ModuleSpec

_NATIVE_LOADERS: Mapping[CodeType, Callable[[Mapping[str, Any]], str]] = {
    ExtensionFileLoader.create_module.__code__: lambda variables: str(variables["spec"].name),
    ExtensionFileLoader.exec_module.__code__: lambda variables: str(variables["module"].__name__),
}
"""Functions of Python in which modules of native code run when they are imported; and whose import it is."""

_CALLER_OF_LOADERS: CodeType = _bootstrap._call_with_frames_removed.__code__
"""Function of Python through which those functions call native code."""


class ImportGraph:
    """Context that records the imports that modules do while they are imported.

    Attributes:
        modules: the modules that were imported in the context.
    """

    def __init__(self, after_each: Callable[[Iterable[str]], None]) -> None:
        """Record nothing yet.

        Args:
            after_each: is called with the modules after each import, before the code that has done it continues.
        """
        self.modules: set[str] = set()
        self._after_each = after_each
        self._imports: dict[str, dict[str, None]] = {}
        self._replacement = Replacement()

    def __enter__(self) -> "ImportGraph":
        own = builtins.__import__, _bootstrap._gcd_import
        self._loaded = frozenset(sys.modules)

        # Names and order of the arguments are Python's.
        def import_(
            name: str,
            globals: Mapping[str, Any] | None = None,
            locals: Mapping[str, Any] | None = None,
            fromlist: Sequence[str] | None = (),
            level: int = 0,
        ) -> Any:
            loaded = len(sys.modules)
            try:
                return own[0](name, globals, locals, fromlist or (), level)
            finally:
                self._note(_absolute(name, globals or {}, level), fromlist or (), loaded)

        def import_module(name: str, package: Any = None, level: int = 0) -> Any:
            loaded = len(sys.modules)
            try:
                return own[1](name, package, level)
            finally:
                self._note(_absolute(name, {"__package__": package}, level), (), loaded)

        self._replacement.put(builtins, "__import__", import_)
        self._replacement.put(_bootstrap, "_gcd_import", import_module)
        _watch_found_imports(lambda importer, name: self._add(importer, [name]))
        return self

    def __exit__(self, *_: object) -> None:
        _unwatch_found_imports()
        self._replacement.undo()
        self.modules |= sys.modules.keys() - self._loaded

    def add_part(self, package: str, name: str) -> None:
        """Add a part that is there whenever its package is."""
        self._imports.setdefault(package, {})[name] = None

    def closure(self, name: str) -> list[str]:
        """Return all modules that were imported for a module, whether its import or an earlier one did so, and itself.

        They are in the order in which the imports would finish in a process that has imported none of them.
        """
        order, begun, left = [], set(), [(name, False)]
        while left:
            each, is_done = left.pop()
            package = each.rpartition(".")[0]
            if is_done:
                order.append(each)
            elif each in begun:
                continue
            elif package in self._imports.get(each, {}) and package not in begun:
                # The package is first, and may import the module itself.
                left += [(each, False), (package, False)]
            else:
                begun.add(each)
                left.append((each, True))
                left += [(inner, False) for inner in reversed(self._imports.get(each, {}))]
        return order

    def _note(self, name: str, parts: Iterable[str], loaded: int) -> None:
        if "*" in parts:
            # Python looks at each of these names, which may load a part.
            parts = getattr(sys.modules.get(name), "__all__", ())
        parts = [inner for part in parts if (inner := f"{name}.{part}") in sys.modules]
        # Native code imports modules without a call of `__import__`.
        new = islice(reversed(sys.modules), max(len(sys.modules) - loaded, 0))
        imported = [name, *parts, *new]
        self._add(imported_now(), imported)
        self._after_each(imported)

    def _add(self, importer: str, names: Iterable[str]) -> None:
        known = self._imports.setdefault(importer, {})
        new = [name for name in dict.fromkeys(names) if name not in known]
        known.update(dict.fromkeys(new))
        for name in new:
            # The import of a module imports the packages above it.
            package = name.rpartition(".")[0]
            if package:
                self._imports.setdefault(name, {})[package] = None


def _absolute(name: str, namespace: Mapping[str, Any], level: int) -> str:
    """Return the full name of a module that code in a namespace imports."""
    package = namespace.get("__package__") or str(namespace.get("__name__")).rpartition(".")[0]
    try:
        return importlib.util.resolve_name("." * level + name, package) if level else name
    except ImportError:  # the import has failed for the same reason
        return name


def _watch_found_imports(note: Callable[[str, str], None]) -> None:
    """Call a function with the importer and the name at each import by native code that finds a module loaded.

    Such an import is a look-up in `sys.modules`, after which Python asks the module's spec whether the module is still
    being imported.
    """

    def is_initializing(spec: ModuleSpec) -> bool:
        frame: Any = sys._getframe(1)
        # Python calls functions of loaders through one of its own.
        native = _NATIVE_LOADERS.get(frame.f_back.f_code) if frame.f_code is _CALLER_OF_LOADERS else None
        if native is not None:
            note(native(frame.f_back.f_locals), spec.name)
        return bool(vars(spec).get("_initializing"))

    def set_initializing(spec: ModuleSpec, value: bool) -> None:
        vars(spec)["_initializing"] = value

    _ModuleSpec._initializing = property(is_initializing, set_initializing)


def _unwatch_found_imports() -> None:
    del _ModuleSpec._initializing


def _imported_by(frame: Any) -> str:
    """Return the name of the module whose import runs in a frame: its own code, or its loader if that is native code.

    Empty if none does.
    """
    code = frame.f_code
    if code.co_name == "<module>":
        # Not the property that watches look-ups of it.
        is_importing = getattr(frame.f_globals.get("__spec__"), "__dict__", {}).get("_initializing")
        return str(frame.f_globals["__name__"]) if is_importing else ""
    native = _NATIVE_LOADERS.get(code)
    return "" if native is None else native(frame.f_locals)


def running_modules(skipped: Container[str] = ()) -> list[str]:
    """Return the modules whose functions run now, the innermost first, and last the one that is being imported.

    Args:
        skipped: modules that are left out.
    """
    frame: Any = sys._getframe(1)
    running = []
    while frame is not None:
        imported = _imported_by(frame)
        name = imported or str(frame.f_globals.get("__name__"))
        if name not in skipped:
            running.append(name)
            if imported:
                break
        frame = frame.f_back
    return running


def imported_now() -> str:
    """Return the innermost module that is being imported, whose functions or those of others have made a call."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        imported = _imported_by(frame)
        if imported:
            return imported
        frame = frame.f_back
    return ""
