"""Places of code in installed modules, which are the same on both sides."""

import functools
import sys
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from jitclient.capture.user_code.bytecode import nested
from jitclient.capture.user_code.installed import is_user_module
from jitclient.errors import CaptureError


class Placed(NamedTuple):
    """Code object of this process, and the globals that it reads."""

    code: CodeType
    names: dict[str, Any]


def place_of(func: FunctionType) -> tuple[str, int, int, str]:
    """Return the place of an installed function's code.

    The place is the module, zero, the number of the code object in the module, and its qualified name.

    Raises:
        CaptureError: no installed module contains the code.
    """
    module = func.__globals__.get("__name__")
    if isinstance(module, str) and not is_user_module(module) and _names_of(module) is func.__globals__:
        for part, code in enumerate(_codes_of(module)):
            if code == func.__code__:
                return module, 0, part, code.co_qualname
    raise CaptureError(
        f"{func.__qualname__} was made during the trace, from code outside the capture and installed modules"
    )


def code_at(module: str, part: int, qualname: str) -> Placed:
    """Return the code at a place in an installed module that is loaded.

    Raises:
        CaptureError: the module is not loaded or not installed, or has other code at the place.
    """
    if module in sys.modules and not is_user_module(module):
        codes = _codes_of(module)
        if 0 <= part < len(codes) and codes[part].co_qualname == qualname:
            return Placed(codes[part], _names_of(module))
    raise CaptureError(f"{module} has no {qualname} here")


def _names_of(module: str) -> dict[str, Any]:
    return vars(sys.modules[module]) if module in sys.modules else {}


@functools.lru_cache(maxsize=64)
def _codes_of(module: str) -> tuple[CodeType, ...]:
    """Return the code objects of a module, in the order of their locations; raise CaptureError if the loader fails."""
    loader: Any = getattr(sys.modules[module].__spec__, "loader", None)
    try:
        code = loader.get_code(module)
    except Exception as error:
        # Third-party loaders may raise any exception.
        raise CaptureError(f"the code of {module} cannot be read") from error
    return tuple(nested(code)) if isinstance(code, CodeType) else ()
