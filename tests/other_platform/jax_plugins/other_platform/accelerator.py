"""Properties of an accelerator: its names, the order of its devices, and a memory that is not the host's."""

import ctypes as c
import threading
from collections.abc import Callable, Collection
from typing import Any

from .table import (
    Arguments,
    BoolArguments,
    Function,
    Implementation,
    IntArguments,
    ListArguments,
    Original,
    Table,
)

_COPY_UNTIL_TRANSFER_COMPLETES = 1
"""The semantics of host buffers that share nothing. With greater ones, an array may use the host's memory."""

_ITEM_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 2, 8: 4, 9: 8, 10: 2, 11: 4, 12: 8, 13: 2, 14: 8, 15: 16}
"""Bytes of an element, by the number of the dtype (`PJRT_Buffer_Type`), from booleans to complex numbers."""


class FromHostArguments(Arguments):
    """Arguments of a transfer to a device; `subject` is the client."""

    _fields_ = [
        ("data", c.c_void_p),
        ("dtype", c.c_int),
        ("dimensions", c.c_void_p),
        ("dimension_count", c.c_size_t),
        ("strides", c.c_void_p),
        ("stride_count", c.c_size_t),
        ("semantics", c.c_int),
        ("device", c.c_void_p),
        ("memory", c.c_void_p),
        ("layout", c.c_void_p),
        ("done", c.c_void_p),
        ("buffer", c.c_void_p),
    ]


class _ShapeSpec(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("extensions", c.c_void_p),
        ("dimensions", c.c_void_p),
        ("dimension_count", c.c_size_t),
        ("dtype", c.c_int),
    ]


class _CreateBuffersArguments(Arguments):
    _fields_ = [
        ("specs", c.c_void_p),
        ("spec_count", c.c_size_t),
        ("layouts", c.c_void_p),
        ("layout_count", c.c_size_t),
        ("memory", c.c_void_p),
        ("manager", c.c_void_p),
    ]


class _NumberedArguments(Arguments):
    """Arguments about one of the buffers of a transfer."""

    _fields_ = [("number", c.c_int), ("value", c.c_void_p)]


class _TransferArguments(Arguments):
    _fields_ = [
        ("number", c.c_int),
        ("data", c.c_void_p),
        ("offset", c.c_int64),
        ("nbytes", c.c_int64),
        ("is_last", c.c_bool),
        ("done", c.c_void_p),
    ]


def rename(table: Table, platform: str, version: str, kind: str) -> None:
    """Set the names of the platform, of its version and of its devices' kind."""
    table.return_text(Function.CLIENT_PLATFORM_NAME, platform)
    table.return_text(Function.CLIENT_PLATFORM_VERSION, version)
    table.return_text(Function.DEVICE_DESCRIPTION_KIND, kind)


def separate_memory(table: Table) -> None:
    """Make arrays share no memory with the host: each transfer copies."""
    table.replace(Function.BUFFER_IS_ON_CPU, lambda _: _answer_no)
    table.replace(Function.CLIENT_BUFFER_FROM_HOST_BUFFER, _copying)


def choose_devices(table: Table, ids: Collection[int]) -> None:
    """Make the platform have the devices with these ids only. JAX sorts them by their ids."""
    lists: list[Any] = []  # forever, because JAX reads them later

    def choosing(choose: Callable[[list[int]], list[int]]) -> Callable[[Original], Implementation]:
        def make(original: Original) -> Implementation:
            def answer(address: int) -> int | None:
                error = original(address)
                if not error:
                    found = ListArguments.from_address(address)
                    chosen = choose(found.items[: found.length])
                    lists.append((c.c_void_p * len(chosen))(*chosen))
                    found.items, found.length = c.cast(lists[-1], c.POINTER(c.c_void_p)), len(chosen)
                return error

            return answer

        return make

    def devices(found: list[int]) -> list[int]:
        return [one for one in found if device_id(table, one) in ids]

    def memories(found: list[int]) -> list[int]:
        return [one for one in found if devices(table.items(Function.MEMORY_ADDRESSABLE_BY_DEVICES, one))]

    table.replace(Function.CLIENT_DEVICES, choosing(devices))
    table.replace(Function.CLIENT_ADDRESSABLE_DEVICES, choosing(devices))
    table.replace(Function.CLIENT_ADDRESSABLE_MEMORIES, choosing(memories))


def device_id(table: Table, device: int) -> int:
    """Return the id of a device."""
    description = table.pointer(Function.DEVICE_GET_DESCRIPTION, device)
    return table.ask(Function.DEVICE_DESCRIPTION_ID, IntArguments(subject=description)).value


def delay_transfers(table: Table, seconds: float) -> None:
    """Make transfers to a device read their source after some seconds, unless they must read it at once."""

    def delaying(original: Original) -> Implementation:
        def from_host(address: int) -> int | None:
            given = FromHostArguments.from_address(address)
            nbytes = _dense_bytes(given)
            if given.semantics < _COPY_UNTIL_TRANSFER_COMPLETES or not nbytes:
                return original(address)
            spec = _ShapeSpec(c.sizeof(_ShapeSpec), None, given.dimensions, given.dimension_count, given.dtype)
            created = _CreateBuffersArguments(subject=given.subject, specs=c.addressof(spec), spec_count=1)
            created.memory = given.memory or table.pointer(Function.DEVICE_DEFAULT_MEMORY, given.device)
            manager = table.ask(Function.CLIENT_CREATE_BUFFERS_FOR_ASYNC_HOST_TO_DEVICE, created).manager
            given.buffer = table.ask(Function.TRANSFER_RETRIEVE_BUFFER, _NumberedArguments(subject=manager)).value
            given.done = table.pointer(Function.BUFFER_READY_EVENT, given.buffer)
            source = _TransferArguments(subject=manager, data=given.data, nbytes=nbytes, is_last=True)
            threading.Timer(seconds, _transfer, (table, source)).start()
            return None

        return from_host

    table.replace(Function.CLIENT_BUFFER_FROM_HOST_BUFFER, delaying)


def _transfer(table: Table, source: _TransferArguments) -> None:
    done = table.ask(Function.TRANSFER_DATA, source).done
    table.ask(Function.EVENT_AWAIT, Arguments(subject=done))
    table.ask(Function.EVENT_DESTROY, Arguments(subject=done))
    table.ask(Function.TRANSFER_DESTROY, Arguments(subject=source.subject))


def _dense_bytes(given: FromHostArguments) -> int:
    """Return the size of a source whose elements follow each other; zero for any other, and for unusual dtypes."""
    sizes = list((c.c_int64 * given.dimension_count).from_address(given.dimensions)) if given.dimension_count else []
    strides = list((c.c_int64 * given.stride_count).from_address(given.strides)) if given.stride_count else []
    nbytes = _ITEM_BYTES.get(given.dtype, 0)
    for size, stride in zip(reversed(sizes), reversed(strides or sizes), strict=True):
        if strides and stride != nbytes:
            return 0
        nbytes *= size
    return nbytes


def _answer_no(address: int) -> None:
    BoolArguments.from_address(address).value = False


def _copying(original: Original) -> Implementation:
    def from_host(address: int) -> int | None:
        arguments = FromHostArguments.from_address(address)
        arguments.semantics = min(arguments.semantics, _COPY_UNTIL_TRANSFER_COMPLETES)
        return original(address)

    return from_host
