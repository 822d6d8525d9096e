"""Modules of the program, as workers import them: their source, which the driver sends when a worker asks for it.

So functions and classes of modules travel by name, and are the same objects for all code on a worker, as they are in
the driver. A module whose file is newer than the code that the program runs is not sent: workers would compute with
other code. A module that changes later, as in a notebook with `%autoreload`, makes the workers start again.
"""

import functools
import os
import sys
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from importlib.machinery import SourceFileLoader
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from jitclient.capture.user_code.installed import find_source, is_user_module
from jitclient.pools.messages import Source

_MAIN = ("__main__", "__mp_main__")
Version = tuple[int, int]


class Answer(NamedTuple):
    """Answer to a worker that imports a module.

    Attributes:
        message: the message.
        text: the source.
        file: path and version of the file, if there is one.
    """

    message: Source
    text: bytes = b""
    file: tuple[str, Version] | None = None


def answer(name: str) -> Answer:
    """Return the source of a module, or an answer without one if it is no Python module of the program."""
    try:
        return _answer(name)
    # The program's own finders may raise anything, as may its modules' attributes.
    except Exception as error:
        return Answer(Source(name, failure=f"module {name}: its source cannot be read ({error})"))


def _answer(name: str) -> Answer:
    live = sys.modules.get(name)
    spec = getattr(live, "__spec__", None) or find_source(name)
    if name in _MAIN or spec is None or not is_user_module(name):
        return Answer(Source(name))
    is_package, path = spec.submodule_search_locations is not None, (spec.origin or "") if spec.has_location else ""
    if not path.endswith(".py"):
        return Answer(Source(name, found=bool(path) or is_package, is_package=is_package, path=path))
    version = version_of(path)
    with open(path, "rb") as file:
        text = file.read()
    # Another loader, such as pytest's, makes other code of the text.
    if live is not None and type(spec.loader) is SourceFileLoader and not _is_code_of(live, text, path):
        failure = (
            f"module {name}: {path} has changed since this program imported it, so workers would run other code. "
            "Reload the module, or run the program again."
        )
        return Answer(Source(name, failure=failure))
    return Answer(Source(name, found=True, is_package=is_package, path=path), text, (path, version))


def top_names() -> list[str]:
    """Return the top-level names of the loaded modules of the program."""
    return _top_names(len(sys.modules))


@functools.lru_cache(maxsize=1)
def _top_names(_: int) -> list[str]:
    tops = {name.partition(".")[0] for name in list(sys.modules)} - set(_MAIN)
    return sorted(top for top in tops if top in sys.modules and is_user_module(top))


def version_of(path: str) -> Version:
    """Return the version of a file: another one after each change."""
    try:
        found = os.stat(path)
    except OSError:  # the file is being replaced, or was deleted
        return (0, 0)
    return found.st_mtime_ns, found.st_size


def _is_code_of(module: ModuleType, text: bytes, path: str) -> bool:
    """Return whether all functions of a module are those of a text."""
    compiled = set(_codes(compile(text, path, "exec", dont_inherit=True)))
    return all(code in compiled for code in _live_codes(vars(module), module.__name__, path))


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _live_codes(names: Any, module: str, path: str, seen: AbstractSet[type] = frozenset()) -> Iterator[CodeType]:
    """Yield the code of the functions that a namespace defines, those of its classes too."""
    for value in list(names.values()):
        if isinstance(value, FunctionType) and value.__module__ == module and value.__code__.co_filename == path:
            yield value.__code__
        elif isinstance(value, type) and value.__module__ == module and value not in seen:
            yield from _live_codes(vars(value), module, path, {*seen, value})
