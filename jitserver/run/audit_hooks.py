"""Audit hooks that the imports of a helper register: a run gets each of them when its import would register it.

The interpreter has no way to remove a hook, so the helper has none of them: a hook of a package would otherwise be in
programs that do not import it.
"""

import sys
from collections.abc import Callable, Set
from typing import Any, NamedTuple

from jitserver.run.import_graph import imported_now
from jitserver.run.replacement import Replacement


class _Registered(NamedTuple):
    """Hook that the import of a module registers."""

    module: str
    hook: Callable[[str, tuple[Any, ...]], object]


class AuditHooks:
    """Context that keeps the hooks that imports register."""

    def __init__(self) -> None:
        self._kept: list[_Registered] = []
        self._replacement = Replacement()

    def __enter__(self) -> "AuditHooks":
        def addaudithook(hook: Callable[[str, tuple[Any, ...]], object]) -> None:
            self._kept.append(_Registered(imported_now(), hook))

        self._replacement.put(sys, "addaudithook", addaudithook)
        return self

    def __exit__(self, *_: object) -> None:
        self._replacement.undo()

    def show_for(self, modules: Set[str]) -> None:
        """Register the hooks that the imports of modules register."""
        for each in self._kept:
            if each.module in modules:
                sys.addaudithook(each.hook)
