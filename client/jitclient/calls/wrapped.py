"""How a jitted function describes itself: as the function that it wraps, which is how JAX's does."""

import functools
from collections.abc import Callable
from typing import Any


def describe_as(wrapper: Any, fun: Callable[..., Any]) -> None:
    """Gives a wrapper the name, the texts and the attributes of a function.

    Attributes whose names the wrapper's class has are left out: an object that is jitted may have fields of any name.
    """
    functools.update_wrapper(wrapper, fun, updated=())
    attributes = getattr(fun, "__dict__", {})
    known = set(dir(type(wrapper))) - {"__dict__", "__doc__", "__module__", "__annotations__"}
    vars(wrapper).update({name: value for name, value in attributes.items() if name not in known})
    named: Any = fun
    while isinstance(named, functools.partial):
        named = named.func
    wrapper.__name__ = getattr(named, "__name__", type(named).__name__)
    wrapper.__qualname__ = getattr(fun, "__qualname__", wrapper.__name__)
    wrapper.__wrapped__ = fun
