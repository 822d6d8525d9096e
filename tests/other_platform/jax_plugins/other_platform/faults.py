"""Failures of an accelerator: a device that breaks for good or is full, a crash after a launch, a refused program."""

import contextlib
import ctypes as c
import os
import threading

from .errors import new_error
from .memory import ExecuteArguments, results_of
from .table import Arguments, Function, Implementation, IntArguments, ListArguments, Original, Table

_ILLEGAL_ADDRESS = "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered"
_NO_IMAGE = "CUDA_ERROR_NO_BINARY_FOR_GPU: no kernel image is available for execution on the device"
_OUT_OF_MEMORY = "Out of memory while trying to allocate 1073741824 bytes."
_INTERNAL = 13  # the status code to which XLA converts CUDA's errors
_RESOURCE_EXHAUSTED = 8
_ABORT_SECONDS = 0.2


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


def break_device(table: Table, path: str) -> None:
    """Break the device once a file exists at `path`, which is removed, until the process exits.

    As on a GPU, an execution that breaks it is launched without an error, which its results have; all later executions
    and transfers, of whatever program, fail at once.
    """
    is_broken = False
    clients: list[int] = []

    def breaks() -> bool:
        nonlocal is_broken
        if os.path.exists(path):
            is_broken = True
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            return True
        return False

    def failing(original: Original) -> Implementation:
        def function(address: int) -> int | None:
            if is_broken or breaks():
                return new_error(table, _ILLEGAL_ADDRESS, _INTERNAL)
            return original(address)

        return function

    def executing(original: Original) -> Implementation:
        def execute(address: int) -> int | None:
            if is_broken:
                return new_error(table, _ILLEGAL_ADDRESS, _INTERNAL)
            breaks_now, error = breaks(), original(address)
            if breaks_now and not error:
                _poison(table, clients[-1], ExecuteArguments.from_address(address))
            return error

        return execute

    def creating(original: Original) -> Implementation:
        def create(address: int) -> int | None:
            error = original(address)
            if not error:
                clients.append(_CreateClientArguments.from_address(address).client)
            return error

        return create

    table.replace(Function.CLIENT_CREATE, creating)
    table.replace(Function.LOADED_EXECUTABLE_EXECUTE, executing)
    table.replace(Function.CLIENT_BUFFER_FROM_HOST_BUFFER, failing)
    table.replace(Function.BUFFER_TO_HOST_BUFFER, failing)


def _poison(table: Table, client: int, execution: ExecuteArguments) -> None:
    """Replace the results of an execution by buffers that have an error instead of a value."""
    for results, n in results_of(table, execution):
        buffer = results[n]
        sizes = table.ask(Function.BUFFER_DIMENSIONS, ListArguments(subject=buffer))
        poisoned = _ErrorBufferArguments(
            subject=client,
            code=_INTERNAL,
            message=_ILLEGAL_ADDRESS.encode(),
            message_size=len(_ILLEGAL_ADDRESS),
            dimensions=c.cast(sizes.items, c.c_void_p),
            dimension_count=sizes.length,
            dtype=table.ask(Function.BUFFER_ELEMENT_TYPE, IntArguments(subject=buffer)).value,
            memory=table.pointer(Function.BUFFER_MEMORY, buffer),
        )
        results[n] = table.ask(Function.CLIENT_CREATE_ERROR_BUFFER, poisoned).buffer
        table.ask(Function.BUFFER_DESTROY, Arguments(subject=buffer))


def refuse_executables(table: Table) -> None:
    """Make the device load no serialized executable, as one of another architecture."""
    table.replace(Function.EXECUTABLE_DESERIALIZE_AND_LOAD, lambda _: lambda _: new_error(table, _NO_IMAGE, _INTERNAL))


def exhaust_memory(table: Table, path: str) -> None:
    """Make executions fail for lack of memory, as many as the file at `path` has bytes; each removes one byte."""

    def failing(original: Original) -> Implementation:
        def execute(address: int) -> int | None:
            with contextlib.suppress(FileNotFoundError):
                left = os.path.getsize(path)
                if left:
                    os.truncate(path, left - 1)
                    return new_error(table, _OUT_OF_MEMORY, _RESOURCE_EXHAUSTED)
            return original(address)

        return execute

    table.replace(Function.LOADED_EXECUTABLE_EXECUTE, failing)


def abort_after_launches(table: Table, path: str) -> None:
    """Abort the process shortly after an execution was launched, while a file exists at `path`."""

    def aborting(original: Original) -> Implementation:
        def execute(address: int) -> int | None:
            if os.path.exists(path):
                threading.Timer(_ABORT_SECONDS, os.abort).start()
            return original(address)

        return execute

    table.replace(Function.LOADED_EXECUTABLE_EXECUTE, aborting)
