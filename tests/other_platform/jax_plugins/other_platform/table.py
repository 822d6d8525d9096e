"""The function table of a PJRT plugin (`PJRT_Api` of XLA's pjrt_c_api.h), some of whose functions are replaced."""

import ctypes as c
import enum
from collections.abc import Callable
from typing import Any

_HEADER = 40
"""Bytes of PJRT_Api before its first function: its size (8), the extensions (8), the version (24)."""

_FUNCTION = c.CFUNCTYPE(c.c_void_p, c.c_void_p)
"""Type of all functions: takes the address of a struct of arguments, and returns an error or NULL."""

Implementation = Callable[[int], int | None]
Original = Callable[[int], int | None]


class Function(enum.IntEnum):
    """Positions of functions in the table. XLA only ever appends to it."""

    ERROR_MESSAGE = 1
    EVENT_DESTROY = 5
    EVENT_ERROR = 7
    EVENT_AWAIT = 8
    CLIENT_CREATE = 10
    CLIENT_PLATFORM_NAME = 12
    CLIENT_PLATFORM_VERSION = 14
    CLIENT_DEVICES = 15
    CLIENT_ADDRESSABLE_DEVICES = 16
    CLIENT_ADDRESSABLE_MEMORIES = 19
    CLIENT_BUFFER_FROM_HOST_BUFFER = 22
    DEVICE_DESCRIPTION_ID = 23
    DEVICE_DESCRIPTION_KIND = 26
    DEVICE_GET_DESCRIPTION = 29
    DEVICE_DEFAULT_MEMORY = 33
    DEVICE_MEMORY_STATS = 34
    MEMORY_KIND = 36
    MEMORY_ADDRESSABLE_BY_DEVICES = 39
    EXECUTABLE_DESTROY = 40
    EXECUTABLE_NUM_OUTPUTS = 44
    LOADED_EXECUTABLE_GET_EXECUTABLE = 51
    LOADED_EXECUTABLE_ADDRESSABLE_DEVICES = 52
    LOADED_EXECUTABLE_EXECUTE = 55
    EXECUTABLE_DESERIALIZE_AND_LOAD = 56
    BUFFER_DESTROY = 58
    BUFFER_ELEMENT_TYPE = 59
    BUFFER_DIMENSIONS = 60
    BUFFER_ON_DEVICE_SIZE_IN_BYTES = 64
    BUFFER_DEVICE = 65
    BUFFER_MEMORY = 66
    BUFFER_DELETE = 67
    BUFFER_IS_DELETED = 68
    BUFFER_COPY_TO_DEVICE = 69
    BUFFER_TO_HOST_BUFFER = 70
    BUFFER_IS_ON_CPU = 71
    BUFFER_READY_EVENT = 72
    BUFFER_COPY_TO_MEMORY = 92
    EXECUTABLE_GET_COMPILED_MEMORY_STATS = 96
    TRANSFER_DESTROY = 101
    TRANSFER_DATA = 102
    CLIENT_CREATE_BUFFERS_FOR_ASYNC_HOST_TO_DEVICE = 103
    TRANSFER_RETRIEVE_BUFFER = 104
    CLIENT_CREATE_ERROR_BUFFER = 118
    EVENT_CREATE = 126
    EVENT_SET = 127


class Arguments(c.Structure):
    """The beginning of each struct of arguments. `subject` is the client, device, buffer or error it is about."""

    _fields_ = [("size", c.c_size_t), ("extensions", c.c_void_p), ("subject", c.c_void_p)]


class PointerArguments(Arguments):
    """Arguments of functions that return an object, an address or a size."""

    _fields_ = [("value", c.c_void_p)]


class ListArguments(Arguments):
    """Arguments of functions that return a list of objects."""

    _fields_ = [("items", c.POINTER(c.c_void_p)), ("length", c.c_size_t)]


class TextArguments(Arguments):
    """Arguments of functions that return a text."""

    _fields_ = [("text", c.c_void_p), ("length", c.c_size_t)]


class IntArguments(Arguments):
    """Arguments of functions that return a number or an enumerator."""

    _fields_ = [("value", c.c_int)]


class BoolArguments(Arguments):
    """Arguments of functions that return a truth value."""

    _fields_ = [("value", c.c_bool)]


class Table:
    """A copy of a plugin's function table.

    Args:
        address: the address of the plugin's own table.
    """

    def __init__(self, address: int) -> None:
        size = c.c_size_t.from_address(address).value
        self._plugin = address
        self._data = c.create_string_buffer(c.string_at(address, size), size)
        self._kept: list[Any] = []  # objects whose addresses the table contains

    def replace(self, function: Function, make: Callable[[Original], Implementation]) -> None:
        """Replace a function by the one that `make` returns, which may call the original."""
        slot = c.c_void_p.from_buffer(self._data, _HEADER + c.sizeof(c.c_void_p) * function)
        made = _FUNCTION(make(self.original(function)))
        self._kept.append(made)
        slot.value = c.cast(made, c.c_void_p).value

    def original(self, function: Function) -> Original:
        """Return a function of the table as it is now."""
        address = c.c_void_p.from_buffer(self._data, _HEADER + c.sizeof(c.c_void_p) * function).value
        assert address is not None
        return _FUNCTION(address)

    def call(self, function: Function, arguments: Any) -> int | None:
        """Call the plugin's own function, and return its error."""
        arguments.size = c.sizeof(arguments)
        address = c.c_void_p.from_address(self._plugin + _HEADER + c.sizeof(c.c_void_p) * function).value
        assert address is not None
        return _FUNCTION(address)(c.addressof(arguments))

    def ask(self, function: Function, arguments: Any) -> Any:
        """Call the plugin's own function, and return its arguments, which have its results.

        Raises:
            RuntimeError: the function fails.
        """
        error = self.call(function, arguments)
        if error:
            message = TextArguments(subject=error)
            self.call(Function.ERROR_MESSAGE, message)
            raise RuntimeError(f"{function.name}: {c.string_at(message.text, message.length).decode()}")
        return arguments

    def pointer(self, function: Function, subject: int) -> int:
        """Return the pointer or size that the plugin's own function returns."""
        return self.ask(function, PointerArguments(subject=subject)).value or 0

    def items(self, function: Function, subject: int) -> list[int]:
        """Return the list that the plugin's own function returns."""
        found = self.ask(function, ListArguments(subject=subject))
        return found.items[: found.length]

    def return_text(self, function: Function, text: str) -> None:
        """Replace a function by one that returns a text."""
        answer = answer_text(text)
        self.replace(function, lambda _: answer)

    def capsule(self) -> Any:
        """Return the table as the capsule that JAX expects."""
        label = c.c_char_p(b"pjrt_c_api")
        self._kept.append(label)
        new = c.PYFUNCTYPE(c.py_object, c.c_void_p, c.c_char_p, c.c_void_p)(("PyCapsule_New", c.pythonapi))
        return new(c.addressof(self._data), label, None)


def answer_text(text: str) -> Implementation:
    """Return a function of the C API that returns a text."""
    data = c.create_string_buffer(text.encode())

    def answer(address: int) -> None:
        arguments = TextArguments.from_address(address)
        arguments.text, arguments.length = c.addressof(data), len(data) - 1

    return answer
