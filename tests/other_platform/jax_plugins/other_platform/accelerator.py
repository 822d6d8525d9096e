"""Properties of an accelerator: its names, and a memory that is not the host's."""

import ctypes as c

from .table import Arguments, BoolArguments, Function, Implementation, Original, Table

_COPY_UNTIL_TRANSFER_COMPLETES = 1
"""The semantics of host buffers that share nothing. With greater ones, an array may use the host's memory."""


class _FromHostArguments(Arguments):
    _fields_ = [
        ("data", c.c_void_p),
        ("dtype", c.c_int),
        ("dimensions", c.c_void_p),
        ("dimension_count", c.c_size_t),
        ("strides", c.c_void_p),
        ("stride_count", c.c_size_t),
        ("semantics", c.c_int),
    ]


class _MemoryStatsArguments(Arguments):
    _fields_ = [
        ("bytes_in_use", c.c_int64),
        ("peak", c.c_int64),
        ("peak_is_set", c.c_bool),
        ("allocations", c.c_int64),
        ("allocations_is_set", c.c_bool),
        ("largest_allocation", c.c_int64),
        ("largest_allocation_is_set", c.c_bool),
        ("limit", c.c_int64),
        ("limit_is_set", c.c_bool),
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


def limit_memory(table: Table, limit: int) -> None:
    """Make each device report that it has `limit` bytes."""

    def report(address: int) -> None:
        arguments = _MemoryStatsArguments.from_address(address)
        # The struct may be longer in a later version of the header.
        c.memset(address + c.sizeof(Arguments), 0, arguments.size - c.sizeof(Arguments))
        arguments.limit, arguments.limit_is_set = limit, True

    table.replace(Function.DEVICE_MEMORY_STATS, lambda _: report)


def _answer_no(address: int) -> None:
    BoolArguments.from_address(address).value = False


def _copying(original: Original) -> Implementation:
    def from_host(address: int) -> int | None:
        arguments = _FromHostArguments.from_address(address)
        arguments.semantics = min(arguments.semantics, _COPY_UNTIL_TRANSFER_COMPLETES)
        return original(address)

    return from_host
