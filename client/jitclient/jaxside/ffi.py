"""The foreign functions (`jax.ffi`) that a program calls. Their code is in the process that registered them.

A program names its foreign functions, and the daemon finds others under these names, or none. So both sides determine
the place of their code: the module, the library and the symbols. Where it lies in an installed package, the daemon
registers the same function (`register`), and a manifest has the place, as other processes may register another one.
"""

import ctypes
import dataclasses
import importlib
import os
import sys
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from jitclient.capture.manifest import Reads, state_of
from jitclient.capture.manifest.places import compute
from jitclient.capture.user_code.installed import is_installed_path, package_of
from jitclient.errors import CaptureError
from jitclient.jaxside import internals
from jitclient.jaxside.callbacks import equations
from jitclient.wire.messages import ForeignFunction

_PLATFORM = "cpu"
"""The only platform whose foreign functions jax reports. Plugins register theirs where only XLA sees them."""

_BINDINGS = "__foreign_functions__"
"""Part of a name in a manifest that means the foreign functions of this process."""


def foreign_functions(jaxpr: Any, platform: str) -> tuple[ForeignFunction, ...]:
    """Return the foreign functions that a jaxpr calls, sorted by name, with their places in this process."""
    calls = [equation for equation in equations(jaxpr) if equation.primitive.name == "ffi_call"]
    names = sorted({str(call.params.get("target_name")) for call in calls})
    known = internals.foreign_functions(platform) if names and platform == _PLATFORM else {}
    return tuple(_found(name, known[name]) if name in known else ForeignFunction(name) for name in names)


def raise_if_unknown(jaxpr: Any, platform: str) -> None:
    """Refuse a jaxpr that calls foreign functions which this process lacks; XLA would report them only later.

    Not for a backend that is a plugin, which registers its functions where only XLA sees them.

    Raises:
        CaptureError: This process lacks a foreign function that the jaxpr calls.
    """
    names = {function.name for function in foreign_functions(jaxpr, platform)}
    known = internals.foreign_functions(platform) if names else {}
    if known and not known.keys() >= names:
        raise CaptureError(f"the daemon has no {described(names - known.keys())}")


def is_of_program(function: ForeignFunction) -> bool:
    """Return whether the code of a foreign function is known to be outside of installed packages."""
    return bool(function.library) and not function.module


def can_register(function: ForeignFunction) -> bool:
    """Return whether another process can register a foreign function: it is a symbol of an installed package."""
    return bool(function.module and function.symbols) and all(symbol for _, symbol in function.symbols)


def register(functions: Iterable[ForeignFunction]) -> None:
    """Register foreign functions of installed packages, unless the import of their modules does so.

    Raises:
        CaptureError: This process cannot register one, or has another function under its name.
    """
    for function in functions:
        if not function.module:
            continue
        try:
            _register(function)
        except Exception as error:  # a package's import may raise any exception
            reason = f"the daemon cannot register the {described([function.name])}: {error or type(error).__name__}"
            raise CaptureError(reason) from error


def _register(function: ForeignFunction) -> None:
    if package_of(function.module) is None:
        raise ValueError(f"{function.module} is not an installed package")
    import jax.ffi

    module = importlib.import_module(function.module)
    known = internals.foreign_functions(_PLATFORM)
    if function.name not in known:
        if not can_register(function):
            raise ValueError(f"the import of {function.module} does not register it")
        library = ctypes.CDLL(_library_in(module, function.library))
        stages = {stage: jax.ffi.pycapsule(library[symbol]) for stage, symbol in function.symbols}
        jax.ffi.register_ffi_target(function.name, stages, platform=_PLATFORM)
        known = internals.foreign_functions(_PLATFORM)
    if _found(function.name, known[function.name]) != function:
        raise ValueError("another function has that name")


def with_foreign_functions(reads: Reads, jaxpr: Any, platform: str) -> Reads:
    """Return the reads of a trace, including the places of the foreign functions that it calls."""
    functions = foreign_functions(jaxpr, platform)
    if not any(function.library for function in functions):
        return reads
    names = [f"jax:{_BINDINGS}.{_part(function.name)}" for function in functions]
    both = sorted([*zip(reads.names, reads.state, strict=True), *zip(names, state_of(names), strict=True)])
    return dataclasses.replace(reads, names=tuple(name for name, _ in both), state=tuple(state for _, state in both))


def described(names: Iterable[str]) -> str:
    """Return a description of foreign functions for messages, with the names that the user registered."""
    return f"foreign function {', '.join(sorted(names))} (jax.ffi)"


def _bindings(_: Any) -> SimpleNamespace:
    """Return the places of all foreign functions of this process, as fields."""
    fields: dict[str, tuple[Any, ...]] = {}
    for name, stages in sorted(internals.foreign_functions(_PLATFORM).items()):
        found = _found(name, stages)
        fields[_part(name)] = (*fields.get(_part(name), ()), name, found.module, found.library, found.symbols)
    return SimpleNamespace(**fields)


compute(_BINDINGS, _bindings)


def _part(name: str) -> str:
    """Return the name of a foreign function as a part of a name in a manifest, which has no dots."""
    return name.replace(".", "/")


# ---- places


class _DlInfo(ctypes.Structure):
    """Result of the dynamic linker's `dladdr`: the library and the symbol that an address lies in."""

    _fields_ = [
        ("library", ctypes.c_char_p),
        ("begin", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


def _found(name: str, stages: Any) -> ForeignFunction:
    """Return a registered foreign function with its place."""
    by_stage: Mapping[str, Any] = stages if isinstance(stages, dict) else {"execute": stages}
    try:
        places = {stage: _place_of(capsule) for stage, capsule in sorted(by_stage.items())}
    # The object may be no capsule, or the platform's linker may lack `dladdr`.
    except Exception:
        return ForeignFunction(name)
    libraries = {library for library, _ in places.values()}
    if len(libraries) != 1 or "" in libraries:
        return ForeignFunction(name)
    [path], symbols = libraries, tuple((stage, symbol) for stage, (_, symbol) in places.items())
    if not is_installed_path(path):
        return ForeignFunction(name, "", path, symbols)
    module, library = _in_module(path)
    return ForeignFunction(name, module, library, symbols) if module else ForeignFunction(name)


def _in_module(library: str) -> tuple[str, str]:
    """Return the imported top-level module that contains a library, and the path from beside it; empty if none does."""
    path = os.path.realpath(library)
    if path not in _modules:
        for name, module in dict(sys.modules).items():
            for place in _places(module) if "." not in name and package_of(name) is not None else ():
                if path == place or path.startswith(place + os.sep):
                    _modules[path] = name, os.path.relpath(path, os.path.dirname(place))
    return _modules.get(path, ("", ""))


_modules: dict[str, tuple[str, str]] = {}


def _library_in(module: Any, library: str) -> str:
    """Return the path of a library from its path beside a module."""
    paths = [os.path.join(os.path.dirname(place), library) for place in _places(module)]
    return next(filter(os.path.exists, paths), library)


def _places(module: Any) -> list[str]:
    """Return the directories of a package, or the file of a module."""
    found = [*getattr(module, "__path__", [])] or [getattr(module, "__file__", None)]
    return [os.path.realpath(place) for place in found if isinstance(place, str)]


def _place_of(capsule: Any) -> tuple[str, str]:
    """Return the library that contains a foreign function, and its symbol; each is empty if it is unknown."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    find = ctypes.CDLL(None).dladdr
    find.argtypes = [ctypes.c_void_p, ctypes.POINTER(_DlInfo)]
    found, address = _DlInfo(), pointer(capsule, None)
    if not find(address, ctypes.byref(found)) or not found.library:
        return "", ""
    symbol = found.symbol.decode(errors="replace") if found.symbol and found.address == address else ""
    return found.library.decode(errors="replace"), symbol
