"""Names and cells compared by identity with what they held, many at once.

Nothing reads a namespace faster than a function whose globals it is: the interpreter remembers where in it each name
lies. So that is what the checks are: `n0 is v0 and n1 is v1 and ...`, with names
put in, and values as defaults.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from types import CellType, CodeType, FunctionType
from typing import Any

Check = Callable[[], bool]
"""Raises NameError where there is nothing any more."""

_AT_ONCE = 8


def names_hold(names: dict[str, Any], values: dict[str, Any]) -> Iterator[Check]:
    """Checks that a namespace has these values under these names."""
    for some in _some_at_once(list(values)):
        code = _template(in_cells=False).replace(co_names=tuple(some))
        yield FunctionType(code, names, None, tuple([values[name] for name in some]))


def cells_hold(cells: list[CellType]) -> Iterator[Check]:
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
