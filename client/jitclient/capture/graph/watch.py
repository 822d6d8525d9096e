"""The check that no binding was changed on which a capture depends. The check runs before every call and must be fast.

Names and cells are compared, by identity, with the values that they held, several at once. The fastest reader of a
namespace is a function that has it as its globals, because the interpreter caches the position of each name in it. So
the checks are functions with the body `n0 is v0 and n1 is v1 and ...`, where the names are inserted into the code and
the values are defaults.
"""

import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from types import CellType, CodeType, FunctionType
from typing import Any

from jitclient.capture.codec.tracers import holds_tracer
from jitclient.capture.user_code.names import MISSING
from jitclient.core import replaced_code

Check = Callable[[], bool]
"""A function that returns whether bindings are unchanged, or raises one of `UNBOUND_ERRORS` if one is gone."""

_AT_ONCE = 8
_COMPARISONS = 1000
"""How often code is compared after any was replaced: another thread may have reported it, and replace it later."""

UNBOUND_ERRORS = (NameError, KeyError, ValueError)
"""The errors that a check raises if a name was deleted or a cell emptied."""

_code_of = operator.attrgetter("__code__")
_defaults_of = operator.attrgetter("__defaults__")


class Watch:
    """All bindings that a capture depends on, compared by identity.

    Contents of captured objects are not watched: as with `jax.jit`, a function keeps the program that it was first
    given.
    """

    def __init__(self) -> None:
        self._bound: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}
        self._missing: list[tuple[dict[str, Any], str]] = []
        self._classes: list[type] = []
        self._sizes: list[tuple[Sized, int]] = []
        self._cells: list[CellType] = []
        self._functions: list[FunctionType] = []
        self.checks: list[Check] = []
        """Checks that succeed if nothing was rebound. If one fails or raises `UNBOUND_ERRORS`, `unchanged` decides."""
        self._bindings: list[Check] = []
        self._contents: list[Any] = []

    def name(self, names: dict[str, Any], name: str, value: Any) -> None:
        """Watch a name in a namespace. The value is MISSING if the name did not exist."""
        if value is MISSING:
            self._missing.append((names, name))
        else:
            self._bound.setdefault(id(names), (names, {}))[1][name] = value

    def size(self, names: dict[str, Any]) -> None:
        """Watch the size of a namespace that was captured whole, so that new names in it are noticed."""
        self._sizes.append((names, len(names)))

    def cell(self, cell: CellType) -> None:
        """Watch the cell of a closure, which must not be empty."""
        self._cells.append(cell)

    def function(self, func: FunctionType) -> None:
        """Watch the code and the defaults of a function."""
        self._functions.append(func)

    def class_(self, cls: type) -> None:
        """Watch all attributes of a class."""
        self._classes.append(cls)

    def start(self) -> None:
        """Start to watch. This is the last step, because reading instances may add attributes to their classes."""
        self._watch_functions()
        for names in map(vars, self._classes):
            was = list(names.values())
            self.checks.append(lambda names=names, was=was: _are_same(names.values(), was))  # type: ignore[misc]
            self._sizes.append((names, len(was)))
        if self._sizes:
            self.checks.append(lambda: all(len(names) == size for names, size in self._sizes))
        self._watch_bindings()

    def unchanged(self) -> bool:
        """Return whether all watched bindings are unchanged, or changed only to values of traces."""
        try:
            for check in self.checks:
                if not check():
                    return self._changed_only_to_tracers()
            return True
        except UNBOUND_ERRORS:
            return False

    def _changed_only_to_tracers(self) -> bool:
        """Return whether only names and cells have changed, and all of these to values of traces.

        These changes are accepted, as by `jax.jit`: the new values are watched from now on.
        """
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
        replaced_code.start_counting()
        count, seen, left = replaced_code.count, replaced_code.count[0], 0
        functions, codes = self._functions, list(map(_code_of, self._functions))
        defaults = list(map(_defaults_of, functions))

        def have_same_code() -> bool:
            nonlocal seen, left
            now = count[0]
            seen, left = now, (_COMPARISONS if now != seen else left - 1)
            # Equal code has equal effects, and one comparison of all code objects is faster than one for each.
            return list(map(_code_of, functions)) == codes and _are_same(map(_defaults_of, functions), defaults)

        self.checks.append(lambda: (count[0] == seen and left == 0) or have_same_code())


def _are_same(now: Iterable[Any], was: Iterable[Any]) -> bool:
    return all(map(operator.is_, now, was))


def _names_hold(names: dict[str, Any], values: dict[str, Any]) -> Iterator[Check]:
    """Yield checks that a namespace holds these values under these names."""
    for some in _some_at_once(list(values)):
        code = _template(in_cells=False).replace(co_names=tuple(some))
        yield FunctionType(code, names, None, tuple([values[name] for name in some]))


def _cells_hold(cells: list[CellType]) -> Iterator[Check]:
    """Yield checks that cells hold their current contents."""
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
