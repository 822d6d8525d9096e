"""Changes that user code made to installed packages, which installed code would see.

What user code reads of a patched module travels (`namespaces.py`). But a function of the user's
that replaces one inside a library is called by the library, where no capture can put it.
"""

import functools
import sys
from collections.abc import Iterable, Iterator
from types import FunctionType, ModuleType
from typing import Any

from ..errors import CaptureError
from .installed import is_user_module

Place = tuple[str, str]


def refuse_patches(packages: Iterable[str], known: set[Place]) -> None:
    """Raise if a package in use holds a function of the user's that no capture knows of.

    Args:
        packages: the packages that a capture refers to.
        known: (module, name) of patches that travel.
    """
    for package in packages:
        for module, name in _patches_in(package, len(sys.modules)):
            if (module, name) not in known:
                raise CaptureError(f"user code was put on an installed module: {module}.{name}")


@functools.lru_cache(maxsize=64)
def _patches_in(package: str, n_modules: int) -> tuple[Place, ...]:
    """Looked for again whenever modules were imported: it takes milliseconds."""
    return tuple(_find(package))


def _find(package: str) -> Iterator[Place]:
    for module_name, module in list(sys.modules.items()):
        inside = module_name == package or module_name.startswith(f"{package}.")
        if not inside or not isinstance(module, ModuleType):
            continue
        names = vars(module)
        for name, value in list(names.items()):
            if type(value) is FunctionType:
                if _is_put_there(value, names, package):
                    yield module_name, name
            elif isinstance(value, type) and value.__module__ == module_name:
                for attribute, held in list(vars(value).items()):
                    if type(held) is FunctionType and _is_put_there(held, names, package):
                        yield module_name, f"{name}.{attribute}"


def _is_put_there(func: FunctionType, names: dict[str, Any], package: str) -> bool:
    """Whether a function in an installed module, or in a class of it, is the user's."""
    if func.__globals__ is names:
        return False
    home: Any = func.__globals__.get("__name__")
    return type(home) is str and not home.startswith(package) and _is_users(home)


@functools.cache
def _is_users(home: str) -> bool:
    """By the top-level name alone: thousands of modules would each be looked for on disk."""
    top = home.partition(".")[0]
    return top in sys.modules and is_user_module(top)
