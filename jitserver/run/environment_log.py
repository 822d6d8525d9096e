"""Log of the environment variables that imports read and set.

A program may use a module that was imported in advance if its import would read the same values now, in the same
order. The variables that the import set are set then.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Set
from typing import Any, NamedTuple

from jitserver.run.import_graph import running_modules
from jitserver.run.replacement import Replacement

_get_item, _set_item = os._Environ.__getitem__, os._Environ.__setitem__
_delete_item, _iterate = os._Environ.__delitem__, os._Environ.__iter__

_ITERATES = {"tqdm.utils": "TQDM_"}
"""Modules that iterate over all environment variables, and the prefix of the names that they look for."""

_SKIPPED_MODULES = ("_collections_abc", "collections.abc", "os", __name__)
"""Modules through which others look up variables."""


class _Access(NamedTuple):
    """Access of an import to one environment variable, or to all of a prefix.

    Attributes:
        name: name of the variable, or the prefix.
        value: what was read or set: None if there is no variable, the items of a prefix.
        running: modules whose code was running: the one that was imported, and those whose functions it called.
        imported: module that was imported.
        batch: which import of the helper it was; each may import many modules.
        is_write: whether the variable was set or deleted.
    """

    name: str
    value: str | dict[str, str] | None
    running: frozenset[str]
    imported: str
    batch: int
    is_write: bool


class EnvironmentLog:
    """Context that records the accesses of imports to the environment variables.

    Attributes:
        has_iterated: whether an import has asked for all variables.
    """

    def __init__(self) -> None:
        self.has_iterated = False
        self._environment = dict(os.environ)
        self._log: list[_Access] = []
        self._batch = 0
        self._written: dict[str, frozenset[str]] = {}
        self._iterated = ""
        self._replacement = Replacement()

    def __enter__(self) -> "EnvironmentLog":
        # The methods, not the class: an import may store `type(os.environ)`. `os.environb` has the same class.
        def get_item(environ: Any, key: Any) -> Any:
            # `items` looks up each name that `__iter__` yields: those are in the log.
            if environ is os.environ and isinstance(key, str) and key != self._iterated:
                self._note(key, _value_of(key))
            return _get_item(environ, key)

        def set_item(environ: Any, key: Any, value: Any) -> None:
            _set_item(environ, key, value)
            if environ is os.environ:
                self._note(key, value, is_write=True)

        def delete_item(environ: Any, key: Any) -> None:
            _delete_item(environ, key)
            if environ is os.environ:
                self._note(key, None, is_write=True)

        def iterate(environ: Any) -> Iterator[Any]:
            if environ is not os.environ:
                yield from _iterate(environ)
                return
            running = running_modules(_SKIPPED_MODULES)
            prefix = next((prefix for module, prefix in _ITERATES.items() if module in running), None)
            if prefix is None:
                self.has_iterated = True
            else:
                self._note(prefix, _with_prefix(prefix, {name: _value_of(name) or "" for name in _iterate(environ)}))
            for key in _iterate(environ):
                self._iterated = key
                yield key
            self._iterated = ""

        self._replacement.put(os._Environ, "__getitem__", get_item)
        self._replacement.put(os._Environ, "__setitem__", set_item)
        self._replacement.put(os._Environ, "__delitem__", delete_item)
        self._replacement.put(os._Environ, "__iter__", iterate)
        return self

    def __exit__(self, *_: object) -> None:
        self._replacement.undo()

    def revert(self) -> None:
        """Undo what the last import set, so that the next one finds the original variables. Ends a batch.

        The modules that were imported after a variable was set may have read it unnoticed, by native code.
        """
        for name, loaded in self._written.items():
            later = (each for each in sys.modules if each not in loaded and not _is_of_python(each))
            self._log.append(_Access(name, _value_of(name), frozenset(later), "", self._batch, False))
            if name in self._environment:
                _set_item(os.environ, name, self._environment[name])
            elif _value_of(name) is not None:
                _delete_item(os.environ, name)
        self._written.clear()
        self._batch += 1

    def read(self) -> list[str]:
        """Return each variable that imports have read, with its value, in a fixed order."""
        return sorted({repr((each.name, each.value)) for each in self._log if not each.is_write})

    def differs(self, environment: Mapping[str, str]) -> str:
        """Return the name of a variable that imports have read, with another value than now; empty if there is none."""
        prefixes = [each.name for each in self._log if isinstance(each.value, dict)]
        read = {each.name for each in self._log if not each.is_write and not isinstance(each.value, dict)}
        read |= {name for name in {*environment, *self._environment} if name.startswith(tuple(prefixes))}
        return next((name for name in sorted(read) if environment.get(name) != self._environment.get(name)), "")

    def replay(self, modules: Set[str], environment: Mapping[str, str]) -> tuple[dict[str, str | None], str]:
        """Compare what the imports of some modules have read with an environment in which they would happen.

        Args:
            modules: the modules, which would all be imported now.
            environment: the variables.

        Returns:
            The variables that the imports set, with None for those that they delete; and the name of a variable for
            which the imports would read another value, or empty.
        """
        written: dict[str, _Access] = {}
        read: dict[str, tuple[object, int]] = {}
        for each in self._log:
            if each.is_write and each.imported in modules:
                value, batch = read.get(each.name, (each.value, each.batch))
                if value != each.value and batch != each.batch:
                    # Which import would be first depends on the program.
                    return {}, each.name
                written[each.name] = each
            elif not each.is_write and each.running & modules:
                if isinstance(each.value, dict):
                    now: Any = _with_prefix(each.name, environment)
                else:
                    now = written[each.name].value if each.name in written else environment.get(each.name)
                if now != each.value:
                    return {}, each.name
                read[each.name] = each.value, each.batch
        return {name: each.value for name, each in written.items()}, ""  # type: ignore[misc]

    def _note(self, name: str, value: str | dict[str, str] | None, is_write: bool = False) -> None:
        running = running_modules(_SKIPPED_MODULES)
        if is_write:
            self._written.setdefault(name, frozenset(sys.modules))
        imported = running[-1] if running else ""
        self._log.append(_Access(name, value, frozenset(running), imported, self._batch, is_write))


def _is_of_python(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names


def _value_of(name: str) -> str | None:
    value = os.environb.get(os.fsencode(name))
    return None if value is None else os.fsdecode(value)


def _with_prefix(prefix: str, environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(prefix)}
