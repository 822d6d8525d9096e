"""Modules whose bodies run within a context: to measure imports, or to keep them out of a trace."""

import contextlib
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib.machinery import ModuleSpec
from typing import Any

Around = Callable[[str], AbstractContextManager[None] | None]
"""Function that returns the context for the body of a module, given its name; None for none."""


class BodiesWithin(threading.local):
    """Import finder that finds what the others find, and runs the bodies of modules within a context.

    Example:
        >>> sys.meta_path.insert(0, BodiesWithin(lambda name: timed(name)))
    """

    def __init__(self, around: Around) -> None:
        self._around = around
        self._asking = ""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return what the other finders find, as Python asks for it."""
        # Another finder may ask all the others in turn.
        if self._asking == name or self._around(name) is None:
            return None
        asking, self._asking = self._asking, name
        try:
            finds = (getattr(finder, "find_spec", None) for finder in list(sys.meta_path) if finder is not self)
            spec: ModuleSpec | None = next(filter(None, (find(name, path, target) for find in finds if find)), None)
        finally:
            self._asking = asking
        loader: Any = getattr(spec, "loader", None)
        before = getattr(loader, "__dict__", {}).get("exec_module")
        if hasattr(loader, "exec_module") and not (isinstance(loader, type) or getattr(before, "finder", None) is self):

            def exec_module(module: Any) -> None:
                # From now on, the loader is as without this finder.
                vars(loader).pop("exec_module", None)
                if before is not None:
                    loader.exec_module = before
                with self._around(module.__name__) or contextlib.nullcontext():
                    loader.exec_module(module)

            exec_module.finder = self  # type: ignore[attr-defined]
            # A loader without attributes of its own runs the body as it is.
            with contextlib.suppress(Exception):
                loader.exec_module = exec_module
        return spec
