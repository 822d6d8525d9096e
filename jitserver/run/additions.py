"""Additions of imports of a helper to the process: loggers, finders of imports, audit hooks, filters of warnings.

A run gets each of them when its import would add it. Until then they are hidden, as the modules are (`preloaded.py`):
`logging.config.dictConfig`, for example, disables the loggers that exist. A program that asks for a logger by its name
before gets the object that the import has made, which is the one that the imported module uses.

Imports also write messages, such as those of matplotlib at the level DEBUG, which a helper drops. They must be done in
the run if the program would show them.
"""

import contextlib
import logging
import re
import sys
import warnings
from collections.abc import Container, Iterable, Iterator, Sequence, Set
from typing import Any, NamedTuple

from jitclient.capture.user_code.installed import OWN_PACKAGES
from jitserver.run.process_state import finders
from jitserver.run.verdict import Filter, Verdict

_manager: Any = logging.root.manager
_sys: Any = sys
_warnings: Any = warnings
RELATIONS_OF_LOGGERS = ("_cache", "manager", "name", "parent")
"""Attributes of a logger that say which it is, and relate it to others."""


class Loggers:
    """Loggers that imports have made, which can be hidden."""

    def __init__(self) -> None:
        self._hidden: dict[str, logging.Logger] = {}
        self._is_import = False

    def hide(self) -> None:
        """Hide all loggers that there are."""
        found = {name: each for name, each in _manager.loggerDict.items() if isinstance(each, logging.Logger)}
        self._hidden.update(found)
        _manager.loggerDict.clear()
        _manager.loggerClass = self._new

    def show(self) -> None:
        """Show all loggers."""
        self._make(self._hidden)
        _manager.loggerClass = None

    def show_for(self, verdict: Verdict, modules: Set[str]) -> None:
        """Show the loggers that the imports of modules make."""
        self._make(_names_for(verdict, modules))

    def differs(self, verdict: Verdict, modules: Set[str]) -> str:
        """Return which logger the imports of modules would find in another state now; empty if there is none."""
        for name in _names_for(verdict, modules):
            if name in self._hidden and isinstance(_manager.loggerDict.get(name), logging.Logger):
                return f"the program has set the logger {name}"
            others = {*verdict.set_by.get(name, ())} - modules
            if name in self._hidden and others and _state(self._hidden[name]) != _state(logging.getLoggerClass()(name)):
                return f"the logger {name} was set by {min(others)}, which the program has not imported"
        for module in modules & verdict.messages.keys():
            for name, level, was_shown in verdict.messages[module]:
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

    def _make(self, names: Iterable[str]) -> None:
        self._is_import = True
        try:
            for name in list(names):
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


def _names_for(verdict: Verdict, modules: Set[str]) -> list[str]:
    return [name for module, names in verdict.loggers.items() if module in modules for name in names]


def _state(logger: logging.Logger) -> tuple[object, ...]:
    """Return the type and the settings of a logger."""
    own = {name: value for name, value in vars(logger).items() if name not in RELATIONS_OF_LOGGERS}
    return type(logger), own


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
        """Note which finders the last import has added; call this after each import.

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


class AuditHooks:
    """Audit hooks that imports have registered: the interpreter cannot remove one, so this process has none of them."""

    def __init__(self) -> None:
        self._kept: list[Any] = []

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Keep the hooks that imports register within a block."""
        own, before, is_importing = sys.addaudithook, {*sys.modules}, True

        def keep(hook: Any) -> None:
            # An import may have kept this function.
            if not is_importing or hook.__module__.partition(".")[0] in OWN_PACKAGES:
                own(hook)
            else:
                self._kept.append(hook)

        _sys.addaudithook = keep
        try:
            yield
        finally:
            _sys.addaudithook, is_importing = own, False
            for name in sys.modules.keys() - before:
                namespace = getattr(sys.modules[name], "__dict__", {})
                namespace.update({bound: own for bound, value in dict(namespace).items() if value is keep})

    def show_for(self, modules: Container[str]) -> None:
        """Register the hooks that modules define."""
        for hook in self._kept:
            if hook.__module__ in modules:
                sys.addaudithook(hook)


def put_filters(filters: Sequence[tuple[Any, ...]]) -> None:
    """Let these be the filters of warnings."""
    _warnings.filters[:] = filters
    _warnings._filters_mutated()


def add_filter(new: Filter) -> bool:
    """Add a filter of warnings as its import does; return whether its class is there."""
    category: Any = sys.modules.get(new.category[0])
    for part in new.category[1].split("."):
        category = getattr(category, part, None)
    if not isinstance(category, type):
        return False
    patterns = [None if each is None else re.compile(*each) for each in (new.message, new.where)]
    _warnings._add_filter(new.action, patterns[0], category, patterns[1], new.line, append=new.append)
    return True
