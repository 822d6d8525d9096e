"""A second stack for signal handlers, without which the overflow of a thread's stack ends the process unreported."""

import contextlib
import ctypes
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
        _of_thread.memory = ctypes.create_string_buffer(_BYTES)
        stack = _Stack(ctypes.addressof(_of_thread.memory), 0, _BYTES)
        ctypes.CDLL(None).sigaltstack(ctypes.byref(stack), None)
