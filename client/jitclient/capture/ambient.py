"""Inputs from outside Python's objects, recognised by object where user code reaches them.

What they give may differ at the next run although every object is the same, so no key can stand
for it.
"""

import contextlib
import contextvars
import functools
import io
import sys
import threading
from collections.abc import Iterator
from typing import Any

from .names import MISSING, lookup

_NAMED = {
    "builtins": "open input __import__",
    "os": "environ environb getenv getcwd listdir scandir walk stat urandom getpid cpu_count open read popen system",
    "os.path": "exists isfile isdir getmtime getsize expanduser abspath",
    "glob": "glob iglob",
    "sys": "modules argv path stdin flags _getframe",
    "importlib": "import_module reload",
    "time": "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns process_time "
    "localtime gmtime strftime ctime",
    "uuid": "uuid1 uuid4",
    "secrets": "token_bytes token_hex randbelow choice",
    "platform": "node platform uname",
    "socket": "gethostname",
    "getpass": "getuser",
    "subprocess": "run call check_call check_output Popen",
    "inspect": "getsource getsourcelines getsourcefile getfile stack currentframe",
    "linecache": "getline getlines",
    "numpy": "load loadtxt genfromtxt fromfile memmap",
}
"""Module -> names in it that are ambient."""

AMBIENT_MODULES = frozenset(_NAMED) - {"builtins"} | {"numpy.random"}

_GENERATORS = {"random": "_inst", "numpy.random.mtrand": "_rand"}
"""Module -> its hidden generator, whose bound methods draw from the state of the process."""

_CLOCKS = {"datetime": ("datetime.now", "datetime.today", "datetime.utcnow", "date.today")}


@functools.lru_cache(maxsize=1)
def _objects(n_modules: int) -> dict[int, str]:
    return {id(obj): name for name, obj in _resolved()}


def _resolved() -> Iterator[tuple[str, Any]]:
    for module, names in _NAMED.items():
        for name in names.split():
            obj = lookup(module, name)
            if obj is not MISSING:
                yield f"{module}.{name}".removeprefix("builtins."), obj


def ambient_name(obj: Any) -> str | None:
    """The name of the ambient input that an object is, or None."""
    name = _objects(len(sys.modules)).get(id(obj))
    if name is not None:
        return name
    if isinstance(obj, contextvars.ContextVar):
        return f"ContextVar {obj.name!r}"
    if isinstance(obj, io.IOBase):
        return f"file {getattr(obj, 'name', '')!r}"
    owner = getattr(obj, "__self__", None) if callable(obj) else None
    if owner is None:
        return None
    return _bound_to(owner, getattr(obj, "__name__", ""))


def _bound_to(owner: Any, method: str) -> str | None:
    for module, attribute in _GENERATORS.items():
        if owner is lookup(module, attribute):
            return f"{module.removesuffix('.mtrand')}.{method}"
    for module, names in _CLOCKS.items():
        for name in names:
            class_name, _, clock = name.partition(".")
            if clock == method and owner is lookup(module, class_name):
                return f"{module}.{name}"
    return None


def message_of(name: str) -> str:
    """What an error says of it; the same in every process, because it may be in the bytes."""
    return f"{name} is read from outside the function's own objects"


class _Reads(threading.local):
    noted: list[str] | None = None


reads = _Reads()
"""What each thread has read; None where nobody wants to know."""


@contextlib.contextmanager
def noted_reads() -> Iterator[list[str]]:
    """What this thread reads from outside meanwhile: an error may be swallowed by the code that meets it."""
    before, reads.noted = reads.noted, []
    try:
        yield reads.noted
    finally:
        reads.noted = before


@contextlib.contextmanager
def unnoted() -> Iterator[bool]:
    """Reads that nobody wants to know of; yields whether anybody would."""
    before, reads.noted = reads.noted, None
    try:
        yield before is not None
    finally:
        reads.noted = before


def note_read(message: str) -> None:
    """Note a read, if somebody wants to know."""
    if reads.noted is not None:
        reads.noted.append(message)
