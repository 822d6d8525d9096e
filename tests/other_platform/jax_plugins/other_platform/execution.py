"""The arguments of an execution, and the buffers that it makes."""

import ctypes as c
from collections.abc import Iterator
from typing import Any

from .table import Arguments, Function, Table


class ExecuteArguments(Arguments):
    """Arguments of an execution; `subject` is the executable."""

    _fields_ = [
        ("options", c.c_void_p),
        ("arguments", c.POINTER(c.POINTER(c.c_void_p))),
        ("device_count", c.c_size_t),
        ("argument_count", c.c_size_t),
        ("results", c.POINTER(c.POINTER(c.c_void_p))),
        ("events", c.POINTER(c.c_void_p)),
        ("device", c.c_void_p),
    ]


def results_of(table: Table, given: ExecuteArguments) -> Iterator[tuple[Any, int]]:
    """Yield the places of the buffers that an execution has made: lists, and positions in them."""
    executable = table.pointer(Function.LOADED_EXECUTABLE_GET_EXECUTABLE, given.subject)
    count = table.pointer(Function.EXECUTABLE_NUM_OUTPUTS, executable)
    table.ask(Function.EXECUTABLE_DESTROY, Arguments(subject=executable))
    for device in range(given.device_count):
        yield from ((given.results[device], n) for n in range(count))
