"""How objects say that they are made again."""

import copyreg
import sys
import warnings
from typing import Any, NamedTuple

from jitclient.capture.describe.attributes import NEW
from jitclient.capture.graph.nodes import type_name
from jitclient.capture.user_code.installed import OURS
from jitclient.capture.user_code.ownership import is_made_in_c, is_user_class
from jitclient.errors import CaptureError

_HOOKS = ("__reduce_ex__", "__reduce__", "__getstate__")
_TRUSTED = frozenset({*sys.stdlib_module_names, *OURS, "flax", "jax", "jaxlib", "ml_dtypes", "numpy"})
"""Packages whose objects come back as they were, though what they keep for speed comes and goes."""


class Parts(NamedTuple):
    """What `__reduce_ex__` gives, with nothing left out."""

    make: Any
    args: tuple[Any, ...]
    state: Any = None
    items: list[Any] | None = None
    pairs: list[tuple[Any, Any]] | None = None
    setter: Any = None


def reduced(obj: Any) -> Parts | str:
    """Return how an object says that it is made again: what it is made of, or its name."""
    reducer = copyreg.dispatch_table.get(type(obj))
    if reducer is not None:
        parts: Any = reducer(obj)
    elif type(obj).__module__ == "itertools":  # these warn of their end in Python 3.14
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            parts = obj.__reduce_ex__(5)
    else:
        parts = obj.__reduce_ex__(5)
    if isinstance(parts, str):
        return parts
    if not isinstance(parts, tuple):
        raise CaptureError(f"{type_name(obj)} cannot be captured: its __reduce__ is of no use")
    make, args, state, items, pairs, setter = (*parts, None, None, None, None)[:6]
    if isinstance(obj, BaseException) and type(obj).__reduce__ is BaseException.__reduce__:
        make, args = NEW, (make, *args)
    return Parts(make, args, state, items and list(items), pairs and list(pairs), setter)


def says_itself(cls: type) -> bool:
    """Whether a class written in Python says itself how its objects are pickled, and is not known to do that well.

    What it leaves out may be needed, and to ask it may take long: such objects are taken as they are.
    """
    if is_made_in_c(cls):
        return False
    is_plain = all(getattr(cls, hook) is getattr(object, hook) for hook in _HOOKS)
    if is_plain and not hasattr(cls, "__setstate__") and cls not in copyreg.dispatch_table:
        return False
    return is_user_class(cls) or cls.__module__.partition(".")[0] not in _TRUSTED


def maker_of(cls: type) -> type:
    """Whose `__new__` makes an instance: the one of a user class would have to make sense of another's arguments."""
    asks = [k for k in cls.__mro__ if {"__getnewargs__", "__getnewargs_ex__"} & vars(k).keys()]
    if asks and is_user_class(asks[0]):
        return cls
    return next(k for k in cls.__mro__ if "__new__" in vars(k) and not is_user_class(k))
