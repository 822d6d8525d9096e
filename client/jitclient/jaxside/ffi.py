"""The foreign functions (`jax.ffi`) that a program calls. Their code is in the process that registered them."""

import ctypes
from collections.abc import Iterable
from typing import Any

from jitclient.capture.user_code.installed import is_installed_path
from jitclient.errors import CaptureError
from jitclient.jaxside import internals
from jitclient.jaxside.callbacks import equations


def foreign_names(jaxpr: Any) -> tuple[str, ...]:
    """Return the names of the foreign functions that a jaxpr calls, sorted."""
    calls = (equation for equation in equations(jaxpr) if equation.primitive.name == "ffi_call")
    return tuple(sorted({str(call.params.get("target_name")) for call in calls}))


def raise_if_unknown(jaxpr: Any, platform: str) -> None:
    """Refuse a jaxpr that calls foreign functions which this process lacks; XLA would report them only later.

    Not for a backend that is a plugin, which registers its functions where only XLA sees them.

    Raises:
        CaptureError: This process lacks a foreign function that the jaxpr calls.
    """
    names = foreign_names(jaxpr)
    known = internals.foreign_functions(platform) if names else {}
    if known and not known.keys() >= set(names):
        raise CaptureError(f"the daemon has no {described(set(names) - known.keys())}")


def registered_by_program(jaxpr: Any, platform: str) -> tuple[str, ...]:
    """Return the names of a jaxpr's foreign functions whose code in this process is not in an installed package."""
    names = foreign_names(jaxpr)
    known = internals.foreign_functions(platform) if names else {}
    libraries = {name: _library_of(known[name]) for name in names if name in known}
    return tuple(name for name, library in libraries.items() if library and not is_installed_path(library))


def described(names: Iterable[str]) -> str:
    """Return a description of foreign functions for messages, with the names that the user registered."""
    return f"foreign function {', '.join(sorted(names))} (jax.ffi)"


class _Found(ctypes.Structure):
    """Result of the dynamic linker's `dladdr`: the library and the symbol that an address lies in."""

    _fields_ = [
        ("library", ctypes.c_char_p),
        ("begin", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


def _library_of(stages: Any) -> str:
    """Return the path of the library that contains a foreign function; empty if it is unknown."""
    capsule = stages.get("execute") if isinstance(stages, dict) else stages
    try:
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        find = ctypes.CDLL(None).dladdr
        find.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Found)]
        found = _Found()
        is_found = find(pointer(capsule, None), ctypes.byref(found))
    # The object may be no capsule, or the platform's linker may lack `dladdr`.
    except Exception:
        return ""
    return found.library.decode(errors="replace") if is_found and found.library else ""
