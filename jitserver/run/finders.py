"""Finders that the imports of a helper have added to `sys.meta_path`: a run gets each of them with its module.

Until then they are hidden, as the modules are (`preloaded.py`).
"""

import sys
from collections.abc import Container, Iterable
from typing import Any, NamedTuple

from jitserver.run.process_state import finders


class _Added(NamedTuple):
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
        self._shown: list[_Added] = []
        self._hidden: list[_Added] = []

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
            self._shown.append(_Added(new, not before, after[0] if after else None))
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
