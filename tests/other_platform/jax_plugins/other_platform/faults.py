"""Failures of an accelerator: a device that breaks for good or is full, and a crash after a launch."""

import contextlib
import ctypes as c
import os
import threading
from collections.abc import Callable

from .table import Arguments, Function, Implementation, IntArguments, Original, Table, answer_text

_ILLEGAL_ADDRESS = "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered"
_OUT_OF_MEMORY = "Out of memory while trying to allocate 1073741824 bytes."
_INTERNAL = 13  # the status code to which XLA converts CUDA's errors
_RESOURCE_EXHAUSTED = 8
_ABORT_SECONDS = 0.2


def break_device(table: Table, path: str) -> None:
    """Make executions and transfers fail once a file exists at `path`, until the process exits. Removes the file."""
    errors = _Errors(table, _ILLEGAL_ADDRESS, _INTERNAL)
    is_broken = False

    def failing(original: Original) -> Implementation:
        def function(address: int) -> int | None:
            nonlocal is_broken
            if os.path.exists(path):
                is_broken = True
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
            return errors.new() if is_broken else original(address)

        return function

    table.replace(Function.LOADED_EXECUTABLE_EXECUTE, failing)
    table.replace(Function.CLIENT_BUFFER_FROM_HOST_BUFFER, failing)
    table.replace(Function.BUFFER_TO_HOST_BUFFER, failing)


def exhaust_memory(table: Table, path: str) -> None:
    """Make executions fail for lack of memory, as many as the file at `path` has bytes; each removes one byte."""
    errors = _Errors(table, _OUT_OF_MEMORY, _RESOURCE_EXHAUSTED)

    def failing(original: Original) -> Implementation:
        def execute(address: int) -> int | None:
            with contextlib.suppress(FileNotFoundError):
                left = os.path.getsize(path)
                if left:
                    os.truncate(path, left - 1)
                    return errors.new()
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


class _Errors:
    """Errors with a text and a status code of ours.

    The C API has no function that makes an error, so each is one that the plugin made, and the functions that describe
    errors answer for it.
    """

    def __init__(self, table: Table, text: str, code: int) -> None:
        self._own = set[int]()
        self._create = table.original(Function.CLIENT_CREATE)
        # The plugin rejects a struct of arguments whose size is zero.
        self._rejected = c.create_string_buffer(c.sizeof(c.c_size_t))

        def answer_code(address: int) -> None:
            IntArguments.from_address(address).value = code

        table.replace(Function.ERROR_MESSAGE, self._answering(answer_text(text)))
        table.replace(Function.ERROR_GET_CODE, self._answering(answer_code))
        table.replace(Function.ERROR_DESTROY, self._forgetting)

    def new(self) -> int:
        """Return a new error, which its receiver destroys."""
        error = self._create(c.addressof(self._rejected))
        assert error is not None
        self._own.add(error)
        return error

    def _answering(self, answer: Implementation) -> Callable[[Original], Implementation]:
        def make(original: Original) -> Implementation:
            def function(address: int) -> int | None:
                is_own = Arguments.from_address(address).subject in self._own
                return answer(address) if is_own else original(address)

            return function

        return make

    def _forgetting(self, original: Original) -> Implementation:
        def destroy(address: int) -> int | None:
            self._own.discard(Arguments.from_address(address).subject or 0)
            return original(address)

        return destroy
