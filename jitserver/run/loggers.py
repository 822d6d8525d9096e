"""Loggers that the imports of a helper have made: a run finds each of them when its import would make it.

Until then they are hidden, as the modules are (`preloaded.py`): `logging.config.dictConfig`, for example, disables the
loggers that exist. A program that asks for a logger by its name before gets the object that the import has made, which
is the one that the imported module uses.

Imports also write messages, such as those of matplotlib at the level DEBUG, which a helper drops. They must be done in
the run if the program would show them.
"""

import logging
from collections.abc import Callable, Set
from typing import Any

from jitserver.run.import_graph import imported_now
from jitserver.run.replacement import Replacement

_manager: Any = logging.root.manager
_RELATIONS = ("_cache", "manager", "name", "parent")
"""Attributes of a logger that say which it is, and relate it to others."""

_CHANGES = ("addHandler", "removeHandler", "addFilter", "removeFilter")
"""Methods that change a logger without setting an attribute."""


class Loggers:
    """Context that records which loggers imports ask for and set; and these loggers, which can be hidden."""

    def __init__(self) -> None:
        self._asked_for: dict[str, dict[str, None]] = {}
        self._set_by: dict[str, set[str]] = {}
        # By module: names of loggers and levels of messages, and whether the helper would have shown them.
        self._messages: dict[str, dict[tuple[str, int], bool]] = {}
        self._replacement = Replacement()
        self._hidden: dict[str, logging.Logger] = {}
        self._is_import = False

    def __enter__(self) -> "Loggers":
        own, own_is_enabled_for = _manager.getLogger, logging.Logger.isEnabledFor

        def get_logger(name: str) -> logging.Logger:
            self._asked_for.setdefault(imported_now(), {})[name] = None
            found: logging.Logger = own(name)
            return found

        def is_enabled_for(logger: logging.Logger, level: int) -> bool:
            is_shown = own_is_enabled_for(logger, level)
            self._messages.setdefault(imported_now(), {})[logger.name, level] = is_shown
            return is_shown

        def note(logger: logging.Logger) -> None:
            name = getattr(logger, "name", "")
            # A logger that is being made is not there yet.
            if _manager.loggerDict.get(name) is logger:
                self._set_by.setdefault(name, set()).add(imported_now())

        def noting(method: Callable[..., None]) -> Callable[..., None]:
            def change(logger: logging.Logger, *arguments: Any) -> None:
                note(logger)
                method(logger, *arguments)

            return change

        def set_attribute(logger: logging.Logger, name: str, value: object) -> None:
            if name not in _RELATIONS:
                note(logger)
            object.__setattr__(logger, name, value)

        self._replacement.put(_manager, "getLogger", get_logger)
        self._replacement.put(logging.Logger, "isEnabledFor", is_enabled_for)
        self._replacement.put(logging.Logger, "__setattr__", set_attribute)
        for name in _CHANGES:
            self._replacement.put(logging.Logger, name, noting(getattr(logging.Logger, name)))
        return self

    def __exit__(self, *_: object) -> None:
        self._replacement.undo()

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

    def differs(self, modules: Set[str]) -> str:
        """Return which logger the imports of modules would find in another state now; empty if there is none."""
        for name in self._names_for(modules):
            if name in self._hidden and _is_made(name):
                return f"the program has set the logger {name}"
            others = self._set_by.get(name, set()) - modules
            if name in self._hidden and others and _state(self._hidden[name]) != _state(logging.getLoggerClass()(name)):
                return f"the logger {name} was set by {min(others)}, which the program has not imported"
        for module in modules & self._messages.keys():
            for (name, level), was_shown in self._messages[module].items():
                if self._is_enabled_for(name, level) != was_shown:
                    kind = logging.getLevelName(level)
                    return f"the import of {module} logs {kind} messages, and the program has changed which are shown"
        return ""

    def _is_enabled_for(self, name: str, level: int) -> bool:
        """Return whether the logger of a name, which may be hidden, would take a message of a level."""
        if _manager.disable >= level:
            return False
        for end in (*(at for at, letter in enumerate(name) if letter == "."), len(name))[::-1]:
            logger = self._hidden.get(name[:end]) or _manager.loggerDict.get(name[:end])
            if isinstance(logger, logging.Logger) and logger.level:
                return level >= logger.level
        return level >= logging.root.level

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
    """Return the type and the settings of a logger."""
    own = {name: value for name, value in vars(logger).items() if name not in _RELATIONS}
    return type(logger), own
