"""Digests of the functions, classes and primitives in a jaxpr; installed ones are identified by where they live."""

import functools
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

from jitclient.capture.user_code.code import canonical_code
from jitclient.capture.user_code.installed import is_user_module
from jitclient.capture.user_code.names import home_of
from jitclient.capture.user_code.ownership import has_private_globals, is_user_function
from jitclient.core.compat import modules_stamp
from jitclient.jaxside.jaxpr_digest.combining import NotComparableError, combine


def home_digest(obj: Any) -> bytes | None:
    """Return the digest of the module and name under which an installed object lives; None if it has none."""
    # A user function may be stored in an installed module, and may claim that module as its own.
    if is_user_function(obj):
        return None
    home = home_of(obj)
    return None if home is None else combine(b"home", *[part.encode() for part in home])


def function_digest(fun: Any, of_value: Callable[[Any], bytes]) -> bytes:
    """Return the digest of an installed function and of the values in its closure and defaults.

    Raises:
        NotComparableError: The object is not a function of an installed module.
    """
    home = home_digest(fun)
    if home is not None:
        return home
    if type(fun) is functools.partial:
        return combine(b"partial", *map(of_value, (fun.func, fun.args, fun.keywords)))
    if type(fun) is not FunctionType or has_private_globals(fun):
        raise NotComparableError(fun)
    held = [cell.cell_contents for cell in fun.__closure__ or ()]
    names = f"{fun.__module__} {fun.__qualname__}".encode()
    code = canonical_code(fun.__code__).blob
    return combine(b"function", names, code, *map(of_value, (held, fun.__defaults__, fun.__kwdefaults__)))


def primitive_digest(primitive: Any) -> bytes | None:
    """Return the digest of a primitive that an installed module holds.

    Return None for other primitives: their names may not be unique.
    """
    home = _homes(modules_stamp()).get(id(primitive))
    return home and combine(b"primitive", primitive.name.encode(), *[part.encode() for part in home])


@functools.lru_cache(maxsize=1)
def _homes(stamp: int) -> dict[int, tuple[str, str]]:
    """Return the module and name of each primitive; of several, the first in alphabetical order."""
    from jax.extend.core import Primitive

    found = [
        (module, name, id(value))
        for module, held in [(name, vars(module)) for name, module in dict(sys.modules).items() if _is_plain(module)]
        for name, value in dict(held).items()
        if issubclass(type(value), Primitive) and not is_user_module(module)
    ]
    return {i: (module, name) for module, name, i in sorted(found, reverse=True)}


def _is_plain(module: Any) -> bool:
    """Return whether reading a module's names runs no code of the module."""
    return hasattr(type(module), "__dict__") and isinstance(getattr(module, "__dict__", None), dict)
