"""Graph of imports: which modules the import of each module imports."""

import builtins
import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from types import FrameType
from typing import Any

from jitserver.run.replacement import Replacement

_bootstrap: Any = importlib._bootstrap
"""Python's own import system, in which `importlib.import_module` looks up its function."""


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
        self._imports: dict[str, set[str]] = {}
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
        return self

    def __exit__(self, *_: object) -> None:
        self._replacement.undo()
        self.modules |= sys.modules.keys() - self._loaded

    def closure(self, name: str) -> set[str]:
        """Return a module and all modules that were imported for it, whether its import or an earlier one did so."""
        found, left = {name}, [name]
        while left:
            new = self._imports.get(left.pop(), set()) - found
            found |= new
            left += new
        return found

    def _note(self, name: str, parts: Iterable[str], loaded: int) -> None:
        parts = [inner for part in parts if (inner := f"{name}.{part}") in sys.modules]
        # Native code imports modules without a call of `__import__`.
        new = islice(reversed(sys.modules), max(len(sys.modules) - loaded, 0))
        imported = [name, *parts, *new]
        self._add(imported_now(), imported)
        self._after_each(imported)

    def _add(self, importer: str, names: Iterable[str]) -> None:
        new = set(names) - self._imports.setdefault(importer, set())
        self._imports[importer] |= new
        for name in new:
            # The import of a module imports the packages above it.
            package = name.rpartition(".")[0]
            if package:
                self._imports.setdefault(name, set()).add(package)


def _absolute(name: str, namespace: Mapping[str, Any], level: int) -> str:
    """Return the full name of a module that code in a namespace imports."""
    package = namespace.get("__package__") or str(namespace.get("__name__")).rpartition(".")[0]
    try:
        return importlib.util.resolve_name("." * level + name, package) if level else name
    except ImportError:  # the import has failed for the same reason
        return name


def is_importing(frame: FrameType) -> bool:
    """Return whether a frame is that of a module that is being imported."""
    spec = frame.f_globals.get("__spec__")
    return frame.f_code.co_name == "<module>" and getattr(spec, "_initializing", False)


def imported_now() -> str:
    """Return the innermost module that is being imported, whose functions or those of others have made a call."""
    frame: Any = sys._getframe(2)
    while frame is not None and not is_importing(frame):
        frame = frame.f_back
    return str(frame.f_globals["__name__"]) if frame is not None else ""
