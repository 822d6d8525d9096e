"""Additions of imports of a helper to the process: filters of warnings, finders of imports, audit hooks.

A run gets each of them when its import would add it. Until then they are hidden, as the modules are (`preloaded.py`),
and a run has those of Python alone.
"""

import sys
import warnings
from collections.abc import Callable, Container, Iterable, Set
from typing import Any, NamedTuple

from jitserver.run.import_graph import imported_now
from jitserver.run.process_state import finders
from jitserver.run.replacement import Replacement

_warnings: Any = warnings


class _Filter(NamedTuple):
    """Filter that an import has added, to the beginning of the filters or to their end."""

    module: str
    item: tuple[Any, ...]
    append: bool


class Filters:
    """Context that records the filters that imports add."""

    def __init__(self) -> None:
        self._own = list(warnings.filters)
        self._added: list[_Filter] = []
        self._new: list[_Filter] = []
        self._replacement = Replacement()

    def __enter__(self) -> "Filters":
        own = _warnings._add_filter

        def add_filter(*item: Any, append: bool) -> None:
            own(*item, append=append)
            self._new.append(_Filter(imported_now(), item, append))

        self._replacement.put(warnings, "_add_filter", add_filter)
        return self

    def __exit__(self, *_: object) -> None:
        self._replacement.undo()

    def revert(self) -> bool:
        """Remove what the last import has added, so that the next one finds the filters of Python alone.

        Returns:
            Whether a run can add the filters again. If not, the import has changed the list of filters itself.
        """
        found = list(warnings.filters)
        # Others were for a block of code only.
        lasting = {each.item: each for each in self._new if each.item in found and each.item not in self._own}.values()
        self._new.clear()
        self._added += lasting
        self._put(self._own)
        for each in lasting:
            self._add(each)
        can_repeat = list(warnings.filters) == found
        self._put(self._own)
        return can_repeat

    def show_for(self, modules: Set[str]) -> None:
        """Add the filters that the imports of modules add."""
        for each in self._added:
            if each.module in modules:
                self._add(each)

    def _add(self, added: _Filter) -> None:
        _warnings._add_filter(*added.item, append=added.append)

    def _put(self, filters: list[Any]) -> None:
        _warnings.filters[:] = filters
        _warnings._filters_mutated()


class _Finder(NamedTuple):
    """Finder that an import has added.

    Attributes:
        finder: the finder.
        is_first: whether it was added before the finders of Python.
        following: finder of Python before which it was added; None if it was added after them.
    """

    finder: Any
    is_first: bool
    following: Any

    def module(self) -> str:
        """Return the name of the module that defines the finder."""
        return str((self.finder if isinstance(self.finder, type) else type(self.finder)).__module__)

    def put(self) -> None:
        """Add the finder where its import would add it."""
        at = sys.meta_path.index(self.following) if self.following in sys.meta_path else len(sys.meta_path)
        sys.meta_path.insert(0 if self.is_first else at, self.finder)


class Finders:
    """Finders that imports have added, which can be hidden."""

    def __init__(self) -> None:
        self._of_python: list[Any] = list(finders())
        self._shown: list[_Finder] = []
        self._hidden: list[_Finder] = []

    def note(self) -> None:
        """Note which finders the last import has added; call this after each import of the helper.

        They become the first, so that the next import, which may look for a place among the last, finds Python's.
        """
        known = [*self._of_python, *(each.finder for each in self._shown)]
        added: list[Any] = [each for each in finders() if each not in known]
        for new in added:
            at = sys.meta_path.index(new)
            before = [each for each in sys.meta_path[:at] if each in self._of_python]
            after = [each for each in sys.meta_path[at:] if each in self._of_python]
            self._shown.append(_Finder(new, not before, after[0] if after else None))
            sys.meta_path.remove(new)
            sys.meta_path.insert(0, new)

    def hide(self, modules: Container[str]) -> None:
        """Hide the finders of modules."""
        for each in [each for each in self._shown if each.finder in sys.meta_path and each.module() in modules]:
            self._shown.remove(each)
            self._hidden.append(each)
            sys.meta_path.remove(each.finder)

    def show(self) -> None:
        """Show all finders."""
        sys.meta_path[:0] = [each.finder for each in self._hidden]
        self._shown += self._hidden
        self._hidden.clear()

    def show_for(self, modules: Iterable[str]) -> list[Any]:
        """Add the finders of modules, in the order of the modules; return these finders."""
        added = [each for name in modules for each in self._hidden if each.module() == name]
        self._hidden = [each for each in self._hidden if each not in added]
        for each in added:
            each.put()
        return [each.finder for each in added]


class _Registered(NamedTuple):
    """Hook that the import of a module registers."""

    module: str
    hook: Callable[[str, tuple[Any, ...]], object]


class AuditHooks:
    """Context that keeps the audit hooks that imports register.

    The interpreter has no way to remove a hook, so the helper has none of them: a hook of a package would otherwise be
    in programs that do not import it.
    """

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
