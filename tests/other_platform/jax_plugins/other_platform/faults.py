"""Failures of an accelerator: a device that breaks for good or is full, a crash after a launch, a refused program."""

import contextlib
import os
import threading

from .accelerator import FromHostArguments
from .errors import new_error
from .execution import ExecuteArguments
from .poison import Poison
from .table import Function, Implementation, Original, Table

_ILLEGAL_ADDRESS = "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered"
_NO_IMAGE = "CUDA_ERROR_NO_BINARY_FOR_GPU: no kernel image is available for execution on the device"
_OUT_OF_MEMORY = "Out of memory while trying to allocate 1073741824 bytes."
_INTERNAL = 13  # the status code to which XLA converts CUDA's errors
_RESOURCE_EXHAUSTED = 8
_ABORT_SECONDS = 0.2


def break_device(table: Table, path: str) -> None:
    """Break the device once a file exists at `path`, which is removed, until the process exits.

    As on a GPU, that execution and all later ones, of whatever program, are launched without an error, which their
    results have, and so are transfers to the device. Transfers from it fail.
    """
    is_broken = False
    poison = Poison(table, _ILLEGAL_ADDRESS, _INTERNAL)

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
            poisons, error = is_broken or breaks(), original(address)
            if poisons and not error:
                poison.results(ExecuteArguments.from_address(address))
            return error

        return execute

    def putting(original: Original) -> Implementation:
        def put(address: int) -> int | None:
            poisons, error = is_broken or breaks(), original(address)
            if poisons and not error:
                given = FromHostArguments.from_address(address)
                given.buffer = poison.of(given.buffer)
            return error

        return put

    table.replace(Function.LOADED_EXECUTABLE_EXECUTE, executing)
    table.replace(Function.CLIENT_BUFFER_FROM_HOST_BUFFER, putting)
    table.replace(Function.BUFFER_TO_HOST_BUFFER, failing)


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
