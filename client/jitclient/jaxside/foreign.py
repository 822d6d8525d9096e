"""The foreign functions (`jax.ffi`) that a program calls: their code is in the process that registered them."""

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


def refuse_unknown(jaxpr: Any, platform: str) -> None:
    """Raise CaptureError if a jaxpr calls foreign functions that this process lacks, which XLA would find out late.

    Plugins of jax register theirs where only XLA sees them, so all are taken for known on their platforms.
    """
    names = foreign_names(jaxpr)
    known = internals.foreign_functions(platform) if names and platform == "cpu" else {}
    if known and not known.keys() >= set(names):
        raise CaptureError(f"the daemon has no {described(set(names) - known.keys())}")


def registered_by_program(jaxpr: Any, platform: str) -> tuple[str, ...]:
    """Return the names of the foreign functions whose code here is not that of an installed package."""
    names = foreign_names(jaxpr)
    known = internals.foreign_functions(platform) if names else {}
    libraries = {name: _library_of(known[name]) for name in names if name in known}
    return tuple(name for name, library in libraries.items() if library and not is_installed_path(library))


def described(names: Iterable[str]) -> str:
    """Return foreign functions as the user knows them."""
    return f"foreign function {', '.join(sorted(names))} (jax.ffi)"


class _Found(ctypes.Structure):
    """What the dynamic linker knows of an address."""

    _fields_ = [
        ("library", ctypes.c_char_p),
        ("begin", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


def _library_of(stages: Any) -> str:
    """Return the file of the library that a foreign function lies in; empty if that is not known."""
    capsule = stages.get("execute") if isinstance(stages, dict) else stages
    try:
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        find = ctypes.CDLL(None).dladdr
        find.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Found)]
        found = _Found()
        is_found = find(pointer(capsule, None), ctypes.byref(found))
    except Exception:  # no capsule, or another linker
        return ""
    return found.library.decode(errors="replace") if is_found and found.library else ""
