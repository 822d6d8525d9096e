"""Which classes the program registered with abstract base classes of Python's own, and which objects are primitives.

What is registered with packages is in their manifests.
"""

import abc
import collections.abc
import numbers
from collections.abc import Callable, Iterator
from typing import Any

from jitclient.capture.user_code.installed import is_user_module

_ABSTRACT = tuple(
    cls for module in (collections.abc, numbers) for cls in vars(module).values() if isinstance(cls, abc.ABCMeta)
)


def is_primitive(obj: Any) -> bool:
    """Whether an object is a primitive of JAX's, whoever made it."""
    return any(kind.__name__ == "Primitive" and kind.__module__.startswith("jax.") for kind in type(obj).__mro__)


def virtual_subclasses(made: Callable[[Any], bool]) -> Iterator[tuple[type, type]]:
    """Abstract base classes of Python's own, each with a class of the capture's that was registered with it."""
    for base in _ABSTRACT:
        yield from ((base, cls) for cls in registered_with(base) if is_user_module(cls.__module__) and made(cls))


def registered_with(base: type) -> list[type]:
    """The virtual subclasses of an abstract base class, in any order."""
    from _abc import _get_dump  # type: ignore[import-not-found]

    return [cls for reference in _get_dump(base)[0] if (cls := reference()) is not None]
