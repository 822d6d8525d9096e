"""Buffers that have an error instead of a value, as those of an execution that fails after its launch."""

import ctypes as c

from .execution import ExecuteArguments, results_of
from .table import Arguments, Function, Implementation, IntArguments, ListArguments, Original, Table


class _CreateClientArguments(c.Structure):
    _fields_ = [("others", c.c_void_p * 8), ("client", c.c_void_p)]


class _ErrorBufferArguments(Arguments):
    _fields_ = [
        ("code", c.c_int),
        ("message", c.c_char_p),
        ("message_size", c.c_size_t),
        ("dimensions", c.c_void_p),
        ("dimension_count", c.c_size_t),
        ("dtype", c.c_int),
        ("layout", c.c_void_p),
        ("memory", c.c_void_p),
        ("buffer", c.c_void_p),
        ("others", c.c_void_p * 2),
    ]


class Poison:
    """An error that takes the place of values.

    Args:
        table: the platform's functions. Its client must not exist yet.
        text: text of the error.
        code: status code of the error.
    """

    def __init__(self, table: Table, text: str, code: int) -> None:
        self._table, self._text, self._code = table, text.encode(), code
        self._client = 0
        table.replace(Function.CLIENT_CREATE, self._creating)

    def results(self, execution: ExecuteArguments) -> None:
        """Replace the results of an execution."""
        for results, n in results_of(self._table, execution):
            results[n] = self.of(results[n])

    def of(self, buffer: int) -> int:
        """Return a buffer of the same type and place that has the error. Destroy the given one."""
        table = self._table
        sizes = table.ask(Function.BUFFER_DIMENSIONS, ListArguments(subject=buffer))
        arguments = _ErrorBufferArguments(
            subject=self._client,
            code=self._code,
            message=self._text,
            message_size=len(self._text),
            dimensions=c.cast(sizes.items, c.c_void_p),
            dimension_count=sizes.length,
            dtype=table.ask(Function.BUFFER_ELEMENT_TYPE, IntArguments(subject=buffer)).value,
            memory=table.pointer(Function.BUFFER_MEMORY, buffer),
        )
        made = table.ask(Function.CLIENT_CREATE_ERROR_BUFFER, arguments).buffer
        table.ask(Function.BUFFER_DESTROY, Arguments(subject=buffer))
        return int(made)

    def _creating(self, original: Original) -> Implementation:
        def create(address: int) -> int | None:
            error = original(address)
            if not error:
                self._client = _CreateClientArguments.from_address(address).client
            return error

        return create
