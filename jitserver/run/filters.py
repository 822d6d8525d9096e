"""Filters of warnings that the imports of a helper have added: a run gets each of them when its import would add it.

Until then a run has the filters of Python alone, as `preloaded.py` does it with modules.
"""

import warnings
from collections.abc import Set
from typing import Any, NamedTuple

from jitserver.run.import_graph import imported_now
from jitserver.run.replacement import Replacement

_warnings: Any = warnings


class _Added(NamedTuple):
    """Filter that an import has added, to the beginning of the filters or to their end."""

    module: str
    item: tuple[Any, ...]
    append: bool


class Filters:
    """Context that records the filters that imports add."""

    def __init__(self) -> None:
        self._own = list(warnings.filters)
        self._added: list[_Added] = []
        self._new: list[_Added] = []
        self._replacement = Replacement()

    def __enter__(self) -> "Filters":
        own = _warnings._add_filter

        def add_filter(*item: Any, append: bool) -> None:
            own(*item, append=append)
            self._new.append(_Added(imported_now(), item, append))

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

    def _add(self, added: _Added) -> None:
        _warnings._add_filter(*added.item, append=added.append)

    def _put(self, filters: list[Any]) -> None:
        _warnings.filters[:] = filters
        _warnings._filters_mutated()
