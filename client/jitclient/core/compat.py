"""Differences between the versions of Python, each with its first version and its source.

Other modules ask here for what they need, and compare no versions. Differences between versions of jax are in
`jaxside/internals.py`.
"""

import ctypes
import gc
import logging
import sys
import time
import typing
import warnings
from collections.abc import Mapping
from typing import Any

MONITORING: Any = getattr(sys, "monitoring", None)
"""The module of hooks that report each code object once (3.12, PEP 669); None in earlier versions."""

TYPE_ALIASES: tuple[type, ...] = tuple(filter(None, [getattr(typing, "TypeAliasType", None)]))
"""The class of the objects that `type` statements make (3.12, PEP 695); none in earlier versions."""

MAIN_HAS_ANNOTATIONS = sys.version_info < (3, 14)
"""Whether a program finds `__annotations__` in its `__main__`; later versions make them on demand (3.14, PEP 749)."""

CO_HAS_DOCSTRING = 0x4000000
"""The flag of code that has a docstring (3.14, python/cpython#126072); in earlier versions, no code has it."""


_DICTIONARIES_HAVE_VERSIONS = (
    sys.implementation.name == "cpython" and sys.version_info < (3, 14) and "t" not in sys.abiflags
)
"""Whether the fourth word of a dictionary counts its changes (until 3.14, PEP 509; not without the GIL)."""

_INSTANCES_COUNT = sys.version_info < (3, 13)
"""Whether this holds for the dictionaries of instances, too; later versions set attributes beside them (3.13)."""


def version_of(names: Mapping[Any, Any], is_of_instance: bool) -> ctypes.c_uint64 | None:
    """Return the number, as its `value`, that any change of a dictionary changes, also one behind a proxy.

    The dictionary must outlive the result. Return None if this version of Python has no such number.
    """
    if not _DICTIONARIES_HAVE_VERSIONS or (is_of_instance and not _INSTANCES_COUNT):
        return None
    held = names if isinstance(names, dict) else gc.get_referents(names)[0]
    return ctypes.c_uint64.from_address(id(held) + 3 * ctypes.sizeof(ctypes.c_void_p))


_MODULES_VERSION = version_of(sys.modules, False)


def modules_stamp() -> int:
    """Return a number that changes when a module comes or goes: where Python has no such number, their count."""
    return len(sys.modules) if _MODULES_VERSION is None else _MODULES_VERSION.value


def type_variable(name: str, bound: Any, constraints: Any, co: bool, contra: bool, infers_variance: bool) -> Any:
    """Return a type variable; only one that infers its variance needs a keyword that is new (3.12, PEP 695)."""
    inferred = {"infer_variance": True} if infers_variance else {}
    make: Any = typing.TypeVar
    return make(name, *constraints, bound=bound, covariant=co, contravariant=contra, **inferred)


def set_last_exception(error: BaseException) -> None:
    """Store an uncaught exception where debuggers look for it (`last_exc`: 3.12, python/cpython#102778)."""
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    if sys.version_info >= (3, 12):
        sys.last_exc = error


def restart_log_clock() -> None:
    """Make log records count from now on; the module's start is in nanoseconds since 3.13 (python/cpython#102402)."""
    start = time.time_ns() if sys.version_info >= (3, 13) else time.time()
    logging._startTime = start  # type: ignore[attr-defined]


def reduce_iterator(iterator: Any) -> Any:
    """Return the parts of an object of `itertools`, as pickle does.

    That is deprecated since 3.12 and ends with 3.14 (python/cpython#101588).

    Raises:
        TypeError: this version of Python cannot pickle the object.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return iterator.__reduce_ex__(5)
