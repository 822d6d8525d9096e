"""A memory of limited size on each device: it counts the bytes of buffers, and refuses those that do not fit."""

import ctypes as c
import fcntl
import mmap
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from .accelerator import FromHostArguments, device_id
from .errors import new_error
from .execution import ExecuteArguments, results_of
from .poison import Poison
from .table import Arguments, BoolArguments, Function, Implementation, Original, Table, TextArguments

_MAX_DEVICES = 512
_OUT_OF_MEMORY, _RESOURCE_EXHAUSTED = "Out of memory while trying to allocate.", 8


class _CopyArguments(Arguments):
    _fields_ = [("to", c.c_void_p), ("buffer", c.c_void_p)]


class _CompiledStatsArguments(Arguments):
    _fields_ = [(name, c.c_int64) for name in ("code", "arguments", "results", "aliases", "temporary")]
    _fields_ += [("others", c.c_int64 * 7)]


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


class Usage:
    """The bytes in use on each device, by this process and by others with the same directory.

    Each process has a file there, which it locks; that of a process that has died is removed by the next count.

    Args:
        directory: the directory; None if the devices are not shared.
    """

    def __init__(self, directory: str | None) -> None:
        self._directory = directory and Path(directory)
        self.own = memoryview(bytearray(8 * _MAX_DEVICES)).cast("q")
        if self._directory:
            file = os.open(
                self._directory / str(os.getpid()), os.O_CREAT | os.O_RDWR, 0o600
            )  # open until the process ends
            fcntl.flock(file, fcntl.LOCK_EX)
            os.ftruncate(file, 8 * _MAX_DEVICES)
            self.own = memoryview(mmap.mmap(file, 0)).cast("q")

    def of(self, device: int) -> int:
        """Return the bytes in use on a device."""
        return self.own[device] + sum(data[device] for data in self._others())

    def _others(self) -> Iterator[memoryview]:
        for path in self._directory.iterdir() if self._directory else ():
            if path.name != str(os.getpid()):
                with open(path, "rb") as file:
                    try:
                        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                        path.unlink(missing_ok=True)
                    except BlockingIOError:
                        yield memoryview(file.read()).cast("q")


class _Memories:
    """The memories of the devices, and the buffers of this process in them. Thread-safe."""

    def __init__(self, table: Table, limit: int, usage: Usage) -> None:
        self._table, self._limit, self._usage = table, limit, usage
        self._buffers: dict[int, tuple[int, int]] = {}
        self._lock = threading.Lock()

    def have_room(self, nbytes: int, devices: Sequence[int]) -> bool:
        return all(self._usage.of(device) + nbytes <= self._limit for device in devices)

    def add(self, buffer: int) -> bool:
        """Count a buffer; return False if it does not fit."""
        memory = self._table.ask(Function.MEMORY_KIND, TextArguments(subject=self._pointer("MEMORY", buffer)))
        if b"host" in c.string_at(memory.text, memory.length):
            return True
        device = device_id(self._table, self._pointer("DEVICE", buffer))
        nbytes = self._pointer("ON_DEVICE_SIZE_IN_BYTES", buffer)
        with self._lock:
            fits = self.have_room(nbytes, [device])
            if fits:
                self._buffers[buffer] = device, nbytes
                self._usage.own[device] += nbytes
            return fits

    def remove(self, buffer: int) -> None:
        with self._lock:
            device, nbytes = self._buffers.pop(buffer, (0, 0))
            self._usage.own[device] -= nbytes

    def stats(self, address: int) -> None:
        """Answer the question for a device's statistics."""
        found = _MemoryStatsArguments.from_address(address)
        # The struct may be longer in a later version of the header.
        c.memset(address + c.sizeof(Arguments), 0, found.size - c.sizeof(Arguments))
        found.bytes_in_use = self._usage.of(device_id(self._table, found.subject))
        found.limit, found.limit_is_set = self._limit, True

    def _pointer(self, name: str, buffer: int) -> int:
        return self._table.pointer(Function[f"BUFFER_{name}"], buffer)


def limit_memory(table: Table, limit: int, directory: str | None) -> None:
    """Give each device `limit` bytes, which processes with the same `directory` share.

    As on a GPU, an execution for which there is no room is launched without an error, which its results have.
    """
    memories = _Memories(table, limit, Usage(directory))
    poison = Poison(table, _OUT_OF_MEMORY, _RESOURCE_EXHAUSTED)

    def counting(result_of: Callable[[int], int]) -> Callable[[Original], Implementation]:
        def make(original: Original) -> Implementation:
            def function(address: int) -> int | None:
                error = original(address)
                if not error and not memories.add(result_of(address)):
                    table.ask(Function.BUFFER_DESTROY, Arguments(subject=result_of(address)))
                    return new_error(table, _OUT_OF_MEMORY, _RESOURCE_EXHAUSTED)
                return error

            return function

        return make

    def removing(original: Original) -> Implementation:
        def function(address: int) -> int | None:
            memories.remove(Arguments.from_address(address).subject or 0)
            return original(address)

        return function

    def executing(original: Original) -> Implementation:
        def execute(address: int) -> int | None:
            given = ExecuteArguments.from_address(address)
            fits, error = memories.have_room(*_needs(table, given.subject)), original(address)
            if not error and not fits:
                poison.results(given)
            elif not error:
                for buffer in _arguments_of(given):
                    if table.ask(Function.BUFFER_IS_DELETED, BoolArguments(subject=buffer)).value:
                        memories.remove(buffer)  # it was donated
                for results, n in results_of(table, given):
                    memories.add(results[n])
            return error

        return execute

    table.replace(Function.DEVICE_MEMORY_STATS, lambda _: memories.stats)
    table.replace(
        Function.CLIENT_BUFFER_FROM_HOST_BUFFER,
        counting(lambda address: FromHostArguments.from_address(address).buffer),
    )
    for copy in (Function.BUFFER_COPY_TO_DEVICE, Function.BUFFER_COPY_TO_MEMORY):
        table.replace(copy, counting(lambda address: _CopyArguments.from_address(address).buffer))
    for free in (Function.BUFFER_DELETE, Function.BUFFER_DESTROY):
        table.replace(free, removing)
    table.replace(Function.LOADED_EXECUTABLE_EXECUTE, executing)


def _arguments_of(given: ExecuteArguments) -> list[int]:
    devices, count = range(given.device_count), range(given.argument_count)
    return [given.arguments[device][n] or 0 for device in devices for n in count]


def _needs(table: Table, loaded: int) -> tuple[int, list[int]]:
    """Return the bytes that an execution allocates on each of its devices, and the devices' ids."""
    executable = table.pointer(Function.LOADED_EXECUTABLE_GET_EXECUTABLE, loaded)
    stats = table.ask(Function.EXECUTABLE_GET_COMPILED_MEMORY_STATS, _CompiledStatsArguments(subject=executable))
    table.ask(Function.EXECUTABLE_DESTROY, Arguments(subject=executable))
    devices = table.items(Function.LOADED_EXECUTABLE_ADDRESSABLE_DEVICES, loaded)
    return stats.results - stats.aliases + stats.temporary, [device_id(table, device) for device in devices]
