"""The check that nothing a capture went through was rebound, all of it in C loops."""

import functools
import operator
import os
import types
from collections.abc import Callable, Iterable
from typing import Any

from .names import MISSING

_Compare = Callable[[Any, Any], bool]


class Watch:
    """Every binding that a capture went through, compared by identity.

    Contents of captured objects are not watched: as with `jax.jit`, a function keeps the program
    that it was first given.
    """

    def __init__(self) -> None:
        self._bound: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}
        self._missing: list[tuple[dict[str, Any], str]] = []
        self._classes: list[type] = []
        self._sizes: list[tuple[dict[str, Any], int]] = []
        self._cells: list[types.CellType] = []
        self._functions: list[types.FunctionType] = []
        self._files: dict[str, tuple[int, int] | None] = {}
        self._checks: list[Callable[[], bool]] = []

    def name(self, names: dict[str, Any], name: str, value: Any) -> None:
        """A name in a namespace, MISSING if it was not there."""
        if value is MISSING:
            self._missing.append((names, name))
        else:
            self._bound.setdefault(id(names), (names, {}))[1][name] = value

    def size(self, names: dict[str, Any]) -> None:
        """A namespace that was captured whole: new names in it matter."""
        self._sizes.append((names, len(names)))

    def cell(self, cell: types.CellType) -> None:
        """The cell of a closure, with something in it."""
        self._cells.append(cell)

    def function(self, func: types.FunctionType) -> None:
        """The code and the defaults of a function."""
        self._functions.append(func)

    def class_(self, cls: type) -> None:
        """All attributes of a class."""
        self._classes.append(cls)

    def file(self, path: str) -> None:
        """A source file that travels."""
        self._files[path] = _stat(path)

    def seal(self) -> None:
        """Begin to watch. Not earlier: looking at instances adds attributes to their classes."""
        for names, bound in self._bound.values():
            code = {name for name, value in bound.items() if type(value) in _EQUAL_IF_SAME}
            self._watch_names(names, code, _are_equal)
            self._watch_names(names, bound.keys() - code, _are_same)
        for cls in self._classes:
            was = list(vars(cls).values())
            self._checks.append(functools.partial(_values_are_same, vars(cls), was))
            self._sizes.append((vars(cls), len(was)))  # type: ignore[arg-type]
        self._watch_parts("__code__", self._functions)
        self._watch_parts("__defaults__", self._functions)
        self._watch_parts("cell_contents", self._cells)

    def unchanged(self) -> bool:
        """Whether all of that is as it was."""
        try:
            return (
                all(check() for check in self._checks)
                and not any(name in names for names, name in self._missing)
                and all(len(names) == size for names, size in self._sizes)
                and all(_stat(path) == was for path, was in self._files.items())
            )
        except (KeyError, ValueError):  # a name was deleted, or a cell emptied
            return False

    def _watch_names(self, names: dict[str, Any], wanted: Iterable[str], compare: _Compare) -> None:
        ordered = sorted(wanted)
        if ordered:
            get = operator.itemgetter(*ordered, ordered[0])  # always two: always a tuple
            was = get(names)
            self._checks.append(lambda: compare(get(names), was))

    def _watch_parts(self, part: str, objects: list[Any]) -> None:
        get = operator.attrgetter(part)
        was = list(map(get, objects))
        self._checks.append(lambda: _are_same(map(get, objects), was))


_EQUAL_IF_SAME = {types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type}
"""Types whose objects equal only themselves: comparing all at once is faster than one by one."""


def _are_equal(now: Any, was: Any) -> bool:
    return bool(now == was)


def _are_same(now: Iterable[Any], was: Iterable[Any]) -> bool:
    return all(map(operator.is_, now, was))


def _values_are_same(names: Any, was: list[Any]) -> bool:
    return _are_same(names.values(), was)


def _stat(path: str) -> tuple[int, int] | None:
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size
