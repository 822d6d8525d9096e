"""A second stack for signal handlers, without which the overflow of a thread's stack ends the process unreported."""

import contextlib
import ctypes
import mmap
import threading

_BYTES = 64 << 10


class _Stack(ctypes.Structure):
    """C's `stack_t`."""

    _fields_ = [("address", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]


_of_thread = threading.local()


def install() -> None:
    """Give the current thread a second stack. `faulthandler` does so only for the thread that enables it."""
    # AttributeError: the C library has no such function.
    with contextlib.suppress(OSError, AttributeError, MemoryError):
        # Pages that no handler has used take no memory, unlike those of a buffer of ctypes, which writes to them.
        _of_thread.memory = memory = mmap.mmap(-1, _BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        stack = _Stack(ctypes.addressof(ctypes.c_char.from_buffer(memory)), 0, _BYTES)
        ctypes.CDLL(None).sigaltstack(ctypes.byref(stack), None)
