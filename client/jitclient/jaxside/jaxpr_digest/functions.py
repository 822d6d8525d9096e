"""What identifies the functions, classes and primitives in a jaxpr: for what is installed, where it lives."""

import functools
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

from jitclient.capture.user_code.code import canonical_code
from jitclient.capture.user_code.installed import is_user_module
from jitclient.capture.user_code.names import home_of
from jitclient.capture.user_code.ownership import has_private_globals, is_user_function
from jitclient.jaxside.jaxpr_digest.terms import NotComparableError, combine


def home_digest(obj: Any) -> bytes | None:
    """Return the digest of the place where an installed object lives; None if it has none."""
    if is_user_function(obj):  # the user may have put it into an installed module, and it may claim to live there
        return None
    home = home_of(obj)
    return None if home is None else combine(b"home", *[part.encode() for part in home])


def function_digest(fun: Any, of_value: Callable[[Any], bytes]) -> bytes:
    """Return the digest of an installed function, with what it closes over."""
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
    """Return the digest of a primitive that an installed module holds; None of any other: its name may be another's."""
    home = _homes(len(sys.modules)).get(id(primitive))
    return home and combine(b"primitive", primitive.name.encode(), *[part.encode() for part in home])


@functools.lru_cache(maxsize=1)
def _homes(n_modules: int) -> dict[int, tuple[str, str]]:
    """The module and name of each primitive, the first in the alphabet where several modules hold it."""
    from jax.extend.core import Primitive

    found = [
        (module, name, id(value))
        for module, held in [(name, vars(module)) for name, module in list(sys.modules.items()) if _is_plain(module)]
        for name, value in list(held.items())
        if issubclass(type(value), Primitive) and not is_user_module(module)
    ]
    return {i: (module, name) for module, name, i in sorted(found, reverse=True)}


def _is_plain(module: Any) -> bool:
    """Whether to look at a module's names does not run code of its own."""
    return hasattr(type(module), "__dict__") and isinstance(getattr(module, "__dict__", None), dict)
