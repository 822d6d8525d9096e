"""Inputs from outside Python's objects, recognised by object where user code reaches them (`known_inputs.py`).

What they give may differ at the next run although every object is the same, so no key can stand
for it.
"""

import contextlib
import functools
import sys
import threading
from collections.abc import Iterator
from typing import Any

from jitclient.capture.ambient.known_inputs import CLOCKS, GENERATORS, KINDS, NAMED
from jitclient.capture.user_code.names import MISSING, lookup

AMBIENT_MODULES = frozenset(NAMED) - {"builtins"} | {"numpy.random"}


@functools.lru_cache(maxsize=1)
def _objects(n_modules: int) -> dict[int, tuple[str, Any]]:
    names = [(module, name) for module, text in NAMED.items() for name in text.split()]
    found = [(f"{module}.{name}".removeprefix("builtins."), lookup(module, name)) for module, name in names]
    return {id(obj): (name, obj) for name, obj in found if obj is not MISSING}  # an id means something while obj lives


@functools.lru_cache(maxsize=1)
def _kinds(n_modules: int) -> dict[type, str]:
    found = {lookup(*name.rsplit(".", 1)): label for name, label in KINDS.items()}
    return {kind: label for kind, label in found.items() if kind is not MISSING}


def ambient_name(obj: Any) -> str | None:
    """The name of the ambient input that an object is, or None."""
    name, _ = _objects(len(sys.modules)).get(id(obj), (None, None))
    if name is not None:
        return name
    kinds = _kinds(len(sys.modules))
    if issubclass(type(obj), tuple(kinds)):
        label = next(label for kind, label in kinds.items() if issubclass(type(obj), kind))
        return f"{label} {getattr(obj, 'name', '')!r}"
    owner = getattr(obj, "__self__", None) if callable(obj) else None
    if owner is None:
        return None
    return _bound_to(owner, getattr(obj, "__name__", ""))


def _bound_to(owner: Any, method: str) -> str | None:
    for module, attribute in GENERATORS.items():
        if owner is lookup(module, attribute):
            return f"{module.removesuffix('.mtrand')}.{method}"
    for name, methods in CLOCKS.items():
        if method in methods and owner is lookup("datetime", name):
            return f"datetime.{name}.{method}"
    return None


def message_of(name: str) -> str:
    """What an error says of it; the same in every process, because it may be in the bytes."""
    return f"{name} is read from outside the function's own objects"


class _Reads(threading.local):
    noted: list[str] | None = None


reads = _Reads()
"""What each thread has read; None where it is not noted."""


@contextlib.contextmanager
def _noting(into: Any) -> Iterator[Any]:
    before, reads.noted = reads.noted, into
    try:
        yield into
    finally:
        reads.noted = before


def noted_reads() -> contextlib.AbstractContextManager[list[str]]:
    """What this thread reads from outside meanwhile: an error may be swallowed by the code that meets it."""
    return _noting([])


def unnoted() -> contextlib.AbstractContextManager[None]:
    """Reads that are not noted."""
    return _noting(None)


def note_read(message: str) -> None:
    """Note a read, if somebody wants to know."""
    if reads.noted is not None:
        reads.noted.append(message)
