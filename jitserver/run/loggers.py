"""Loggers that the imports of a helper have made: a run finds each of them when its import would make it.

Until then they are hidden, as the modules are (`preloaded.py`): `logging.config.dictConfig`, for example, disables the
loggers that exist. A program that asks for a logger by its name before gets the object that the import has made, which
is the one that the imported module uses.
"""

import logging
from collections.abc import Set
from typing import Any

from jitserver.run.import_graph import imported_now

_manager: Any = logging.root.manager


class Loggers:
    """Context that records which loggers imports ask for; and these loggers, which can be hidden."""

    def __init__(self) -> None:
        self._asked_for: dict[str, dict[str, None]] = {}
        self._hidden: dict[str, logging.Logger] = {}
        self._is_import = False

    def __enter__(self) -> "Loggers":
        own = _manager.getLogger

        def get_logger(name: str) -> logging.Logger:
            self._asked_for.setdefault(imported_now(), {})[name] = None
            found: logging.Logger = own(name)
            return found

        _manager.getLogger = get_logger
        return self

    def __exit__(self, *_: object) -> None:
        del _manager.getLogger

    def hide(self) -> None:
        """Hide all loggers that there are."""
        found = {name: each for name, each in _manager.loggerDict.items() if isinstance(each, logging.Logger)}
        self._hidden.update(found)
        _manager.loggerDict.clear()
        _manager.loggerClass = self._new

    def show(self) -> None:
        """Show all loggers."""
        self._make(list(self._hidden))
        _manager.loggerClass = None

    def show_for(self, modules: Set[str]) -> None:
        """Show the loggers that the imports of modules make."""
        self._make(self._names_for(modules))

    def taken(self, modules: Set[str]) -> str:
        """Return the name of a logger of modules in whose place the program has another one; empty if there is none."""
        return next((name for name in self._names_for(modules) if name in self._hidden and _is_made(name)), "")

    def _names_for(self, modules: Set[str]) -> list[str]:
        return [name for module, names in self._asked_for.items() if module in modules for name in names]

    def _make(self, names: list[str]) -> None:
        self._is_import = True
        try:
            for name in names:
                _manager.getLogger(name)  # which relates it to its parents and children
        finally:
            self._is_import = False

    def _new(self, name: str) -> logging.Logger:
        """Return a logger for a name that has none, as the class of loggers does."""
        kind = logging.getLoggerClass()
        hidden = self._hidden.get(name)
        if hidden is None or not (self._is_import or _state(hidden) == _state(kind(name))):
            return kind(name)
        # The cache has the levels of the loggers that were its parents then.
        hidden._cache.clear()  # type: ignore[attr-defined]
        return self._hidden.pop(name)


def _is_made(name: str) -> bool:
    return isinstance(_manager.loggerDict.get(name), logging.Logger)


def _state(logger: logging.Logger) -> tuple[object, ...]:
    """Return the type and the attributes of a logger, without those that relate it to others."""
    own = {name: value for name, value in vars(logger).items() if name not in ("_cache", "manager", "parent")}
    return type(logger), own
