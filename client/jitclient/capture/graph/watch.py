"""The check that nothing a capture went through was rebound: it is made before every call, so it must be fast.

Names and cells are compared by identity with what they held, many at once. Nothing reads a namespace faster than a
function whose globals it is: the interpreter remembers where in it each name lies. So that is what the checks are:
`n0 is v0 and n1 is v1 and ...`, with names put in, and values as defaults.
"""

import functools
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from types import CellType, CodeType, FunctionType
from typing import Any

from jitclient.capture.codec.tracers import holds_tracer
from jitclient.capture.user_code.names import MISSING

Check = Callable[[], bool]
"""Raises one of `GONE` where there is nothing any more."""

_AT_ONCE = 8

GONE = (NameError, KeyError, ValueError)
"""A name was deleted, or a cell emptied."""

_code_of = operator.attrgetter("__code__")
_defaults_of = operator.attrgetter("__defaults__")


class Watch:
    """Every binding that a capture went through, compared by identity.

    Contents of captured objects are not watched: as with `jax.jit`, a function keeps the program
    that it was first given.
    """

    def __init__(self) -> None:
        self._bound: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}
        self._missing: list[tuple[dict[str, Any], str]] = []
        self._classes: list[type] = []
        self._sizes: list[tuple[Sized, int]] = []
        self._cells: list[CellType] = []
        self._functions: list[FunctionType] = []
        self._files: dict[str, tuple[int, int] | None] = {}
        self.checks: list[Check] = []
        """All hold where nothing was rebound. Where one does not, or raises what `GONE` names, `unchanged` decides."""
        self._bindings: list[Check] = []
        self._contents: list[Any] = []
        self.met_tracer = False
        """Whether something was bound to a value of a trace since. As with `jax.jit`, what was made before goes on; a
        new trace meets that value."""

    def name(self, names: dict[str, Any], name: str, value: Any) -> None:
        """A name in a namespace, MISSING if it was not there."""
        if value is MISSING:
            self._missing.append((names, name))
        else:
            self._bound.setdefault(id(names), (names, {}))[1][name] = value

    def size(self, names: dict[str, Any]) -> None:
        """A namespace that was captured whole: new names in it matter."""
        self._sizes.append((names, len(names)))

    def cell(self, cell: CellType) -> None:
        """The cell of a closure, with something in it."""
        self._cells.append(cell)

    def function(self, func: FunctionType) -> None:
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
        self._watch_functions()
        for names in map(vars, self._classes):
            was = list(names.values())
            self.checks.append(lambda names=names, was=was: _are_same(names.values(), was))  # type: ignore[misc]
            self._sizes.append((names, len(was)))
        if self._sizes:
            self.checks.append(lambda: all(len(names) == size for names, size in self._sizes))
        if self._files:
            self.checks.append(lambda: all(_stat(path) == was for path, was in self._files.items()))
        self._watch_bindings()

    def unchanged(self) -> bool:
        """Whether all of that is as it was."""
        try:
            for check in self.checks:
                if not check():
                    return self._goes_on()
            return True
        except GONE:
            return False

    def _goes_on(self) -> bool:
        """Whether nothing was changed but names and cells that have values of traces now. Those are accepted."""
        if not all(check() for check in self.checks if check not in self._bindings):
            return False
        for names, bound in self._bound.values():
            for name, was in bound.items():
                if names[name] is not was and not holds_tracer(names[name]):
                    return False
            bound.update({name: names[name] for name in bound})
        for names, name in [(names, name) for names, name in self._missing if name in names]:
            if not holds_tracer(names[name]):
                return False
            self._missing.remove((names, name))
            self.name(names, name, names[name])
        contents = [cell.cell_contents for cell in self._cells]
        if not all(now is was or holds_tracer(now) for now, was in zip(contents, self._contents, strict=True)):
            return False
        self._watch_bindings()
        self.met_tracer = True
        return True

    def _watch_bindings(self) -> None:
        others = [check for check in self.checks if check not in self._bindings]
        self._bindings = [*_cells_hold(self._cells)]
        for names, bound in self._bound.values():
            self._bindings += _names_hold(names, bound)
        if self._missing:
            self._bindings.append(lambda: not any(name in names for names, name in self._missing))
        self._contents = [cell.cell_contents for cell in self._cells]
        self.checks = self._bindings + others

    def _watch_functions(self) -> None:
        functions, codes = self._functions, list(map(_code_of, self._functions))
        plain = [func for func in functions if func.__defaults__ is None]
        others = [func for func in functions if func.__defaults__ is not None]
        was = list(map(_defaults_of, others))
        # equal code does the same, and comparing all at once is faster than one by one
        self.checks.append(lambda: list(map(_code_of, functions)) == codes and not any(map(_defaults_of, plain)))
        if others:
            self.checks.append(lambda: _are_same(map(_defaults_of, others), was))


def _are_same(now: Iterable[Any], was: Iterable[Any]) -> bool:
    return all(map(operator.is_, now, was))


def _stat(path: str) -> tuple[int, int] | None:
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size


def _names_hold(names: dict[str, Any], values: dict[str, Any]) -> Iterator[Check]:
    """Checks that a namespace has these values under these names."""
    for some in _some_at_once(list(values)):
        code = _template(in_cells=False).replace(co_names=tuple(some))
        yield FunctionType(code, names, None, tuple([values[name] for name in some]))


def _cells_hold(cells: list[CellType]) -> Iterator[Check]:
    """Checks that cells have what they have now."""
    for some in _some_at_once(cells):
        values = tuple([cell.cell_contents for cell in some])
        yield FunctionType(_template(in_cells=True), {}, None, values, tuple(some))


def _some_at_once(items: list[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), _AT_ONCE):
        some = items[start : start + _AT_ONCE]
        yield some + some[-1:] * (_AT_ONCE - len(some))


@functools.cache
def _template(in_cells: bool) -> CodeType:
    numbers = range(_AT_ONCE)
    values, names = ", ".join(f"v{n}" for n in numbers), ", ".join(f"n{n}" for n in numbers)
    check = f"lambda {values}: {' and '.join(f'n{n} is v{n}' for n in numbers)}"
    function = eval(f"(lambda {names}: {check})({names})" if in_cells else check, dict.fromkeys(names.split(", ")))
    code: CodeType = function.__code__
    return code
