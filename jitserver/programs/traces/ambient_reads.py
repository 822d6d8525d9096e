"""Detection of ambient reads by known functions, and the rules for whether a read matters.

The objects of a captured function do not show the reads of installed code: the environment, the clock, the system's
randomness, files on the disk. Stand-ins for the functions that read these (`stand_ins.py`) therefore report each read
to the trace on their thread.

The reader decides whether a read matters. The reader is the package of the nearest frame outside the standard library.
Reads by jax, numpy and this daemon are internal and affect no value of the program; a read by any other package may. No
read matters below an import, a log record or a quoted source line: imports happen once in a process, whatever is
traced, and the others only inform users.
"""

import functools
import logging
import os
import platform
import random
import time
import uuid
from collections.abc import Callable
from types import ModuleType
from typing import Any

from jitclient.capture.ambient.audit import IMPORTS_AND_QUOTES, THE_FUNCTION, is_below, is_installation, reader
from jitclient.capture.ambient.inputs import RANDOM_FRAME_MODULES, message_of, reads, record_read, unrecorded
from jitserver.programs.traces.stand_ins import StandIn, replace, reporting_method

monotonic = time.monotonic
"""The real clock, without the stand-in's overhead: a call reads the time more than once."""

Describe = Callable[..., str]
"""Function that returns a read's description from the reading function's arguments; empty if nothing is read."""


def install() -> None:
    """Install the stand-ins.

    Call this function once per process, before importing packages that may keep references to the real functions.
    """
    for module, names, what in _KNOWN:
        for name in names.split():
            if hasattr(module, name):  # not every system has all functions
                report = functools.partial(_note, functools.partial(what, f"{module.__name__}.{name}"))
                replace(module, name, functools.partial(StandIn, module=module.__name__, report=report))
    replace(random, "_urandom", lambda _: os.urandom)
    for owner, name, what in _METHODS:
        replace(owner, name, functools.partial(reporting_method, report=functools.partial(_note, what)))


def _note(what: Describe, *args: Any) -> None:
    if reads.noted:
        return  # one read is enough
    with unrecorded():  # finding out what is read also reads
        package = _reader()
        read = what(*args) if package else ""
    if read:
        record_read(message_of(f"{read} (by {package})"))


def _reader() -> str:
    """Return the package that reads, or "" if the read does not matter."""
    module = reader(_SKIPPED_MODULES)
    package = module.partition(".")[0]
    is_internal = package in _INTERNAL_PACKAGES or module in RANDOM_FRAME_MODULES
    return "" if is_internal or is_below(_HARMLESS) else package


def _always(name: str, *args: Any) -> str:
    return name


def _unless_given(name: str, *args: Any) -> str:
    """Describe a call of a time function, unless its last argument, the time to convert, is given."""
    needed = 2 if name == "time.strftime" else 1
    return name if len(args) < needed or args[needed - 1] is None else ""


def _of_path(name: str, path: Any, *args: Any) -> str:
    if isinstance(path, int):
        return ""  # an open file, whose opening was already noted
    text = os.fsdecode(path)
    return "" if is_installation(text) else f"{name} of {text!r}"


def _of_variable(environment: Any, name: Any) -> str:
    return f"os.environ[{name!r}]"


def _of_variables(environment: Any) -> str:
    return "os.environ"


def _for_the_function(name: str) -> Describe:
    """Return a `Describe` for reads that packages need only for messages: they matter only in the function itself."""
    return lambda *args: name if _reader() == THE_FUNCTION else ""


def _unseeded(generator: Any, seed: Any = None, *args: Any) -> str:
    return "a random generator without a seed" if seed is None else ""


_KNOWN: tuple[tuple[ModuleType, str, Describe], ...] = (
    (time, "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns process_time process_time_ns", _always),
    (time, "thread_time thread_time_ns clock_gettime clock_gettime_ns", _always),
    (time, "localtime gmtime ctime strftime", _unless_given),
    (os, "urandom getrandom getpid getppid getcwd getcwdb getlogin uname times getloadavg cpu_count", _always),
    (os, "sched_getaffinity sysconf", _always),
    # They keep what `os.uname` returned before the trace. The key has the rest, the system and the architecture.
    (platform, "node platform processor release version", _always),
    (os, "stat lstat access readlink statvfs", _of_path),
    (uuid, "uuid1", _always),
)
_METHODS: tuple[tuple[type, str, Describe], ...] = (
    (os._Environ, "__getitem__", _of_variable),
    (os._Environ, "__iter__", _of_variables),
    (os._Environ, "__len__", _of_variables),
    (random.Random, "seed", _unseeded),
    (logging.Logger, "getEffectiveLevel", _for_the_function("the level of a logger")),
    (logging.Logger, "hasHandlers", _for_the_function("the handlers of a logger")),
    (logging.Logger, "isEnabledFor", _for_the_function("the level of a logger")),
)
_SKIPPED_MODULES = frozenset({__name__, StandIn.__module__, reader.__module__})

_HARMLESS = IMPORTS_AND_QUOTES | {
    "absl.logging",
    "jax._src.compilation_cache",  # whichever package reads its files
    "logging",
    "traceback",
    "warnings",
}
_INTERNAL_PACKAGES = frozenset({"jax", "jaxlib", "jitclient", "jitserver", "ml_dtypes", "msgspec", "numpy", "rpyc"})
