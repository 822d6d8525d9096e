"""Known functions that read the world, and whether it matters that one was called.

No object of a captured function shows what installed code reads by itself: the environment, the clock, the system's
randomness, what lies on the disk. So stand-ins of the functions that read it (`stand_ins.py`) say so, to whoever traces
something on their thread.

Who asks decides whether it matters. The nearest frame outside the standard library is the one that wanted to know:
what jax, numpy and this daemon read is their own business and decides no value of the program; what any other package
reads may. Nothing matters below an import, a log record or a quoted source line: imports happen once in a process,
whatever is traced, and the others only tell people something.
"""

import builtins
import functools
import logging
import os
import random
import sys
import time
import uuid
from collections.abc import Callable
from types import ModuleType
from typing import Any

from jitclient.capture.ambient.inputs import MARKS, message_of, note_read, reads, unnoted
from jitclient.capture.ambient.world import IMPORTS_AND_QUOTES, frames, is_below, is_installation
from jitserver.programs.traces.stand_ins import StandIn, put, telling

monotonic = time.monotonic
"""The clock itself, which notes nothing: a call asks for the time more than once."""

What = Callable[..., str]
"""What is read, given the arguments of the function that reads it; empty if nothing is."""


def replace_known() -> None:
    """Puts the stand-ins in place. Once per process, before the packages are imported that may keep the real ones."""
    for module, names, what in _KNOWN:
        for name in names.split():
            if hasattr(module, name):  # not every system has all
                tell = functools.partial(_note, functools.partial(what, f"{module.__name__}.{name}"))
                put(module, name, functools.partial(StandIn, module=module.__name__, tell=tell))
    put(random, "_urandom", lambda _: os.urandom)
    for owner, name, what in _METHODS:
        put(owner, name, functools.partial(telling, tell=functools.partial(_note, what)))


def _note(what: What, *args: Any) -> None:
    if reads.noted:
        return  # one is enough
    with unnoted():  # to find out what is read reads too
        reader = _reader()
        read = what(*args) if reader else ""
    if read:
        note_read(message_of(f"{read} (by {reader})"))


def _reader() -> str:
    """The package that wants to know; empty if it is of no consequence."""
    for frame in frames():
        module = str(frame.f_globals.get("__name__"))
        package = module.partition(".")[0]
        if frame.f_builtins is not vars(builtins):
            reader = _THE_FUNCTION  # captured code has builtins of its own
        elif package in sys.stdlib_module_names or module in _BETWEEN:
            continue
        else:
            reader = "" if package in _OWN or module in MARKS else package
        return "" if not reader or is_below(_OF_NO_CONSEQUENCE) else reader
    return ""


def _always(name: str, *args: Any) -> str:
    return name


def _unless_given(name: str, *args: Any) -> str:
    """Of functions that tell the time in some form, or that of a time they are given, the last argument."""
    needed = 2 if name == "time.strftime" else 1
    return name if len(args) < needed or args[needed - 1] is None else ""


def _of_path(name: str, path: Any, *args: Any) -> str:
    if isinstance(path, int):
        return ""  # an open file: that it was opened is known
    text = os.fsdecode(path)
    return "" if is_installation(text) else f"{name} of {text!r}"


def _of_variable(environment: Any, name: Any) -> str:
    return f"os.environ[{name!r}]"


def _of_variables(environment: Any) -> str:
    return "os.environ"


def _for_the_function(name: str) -> What:
    """Of what packages ask only to tell people something."""
    return lambda *args: name if _reader() == _THE_FUNCTION else ""


def _unseeded(generator: Any, seed: Any = None, *args: Any) -> str:
    return "a random generator without a seed" if seed is None else ""


_KNOWN: tuple[tuple[ModuleType, str, What], ...] = (
    (time, "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns process_time process_time_ns", _always),
    (time, "thread_time thread_time_ns clock_gettime clock_gettime_ns", _always),
    (time, "localtime gmtime ctime strftime", _unless_given),
    (os, "urandom getrandom getpid getppid getcwd getcwdb getlogin uname times getloadavg cpu_count", _always),
    (os, "sched_getaffinity", _always),
    (os, "stat lstat access readlink statvfs", _of_path),
    (uuid, "uuid1", _always),
)
_METHODS: tuple[tuple[type, str, What], ...] = (
    (os._Environ, "__getitem__", _of_variable),
    (os._Environ, "__iter__", _of_variables),
    (os._Environ, "__len__", _of_variables),
    (random.Random, "seed", _unseeded),
    (logging.Logger, "getEffectiveLevel", _for_the_function("the level of a logger")),
    (logging.Logger, "hasHandlers", _for_the_function("the handlers of a logger")),
    (logging.Logger, "isEnabledFor", _for_the_function("the level of a logger")),
)
_THE_FUNCTION = "the function itself"
_BETWEEN = frozenset({__name__, StandIn.__module__})

_OF_NO_CONSEQUENCE = IMPORTS_AND_QUOTES | {
    "absl.logging",
    "jax._src.compilation_cache",  # by whatever package it reads its files with
    "logging",
    "traceback",
    "warnings",
}
_OWN = frozenset({"jax", "jaxlib", "jitclient", "jitserver", "ml_dtypes", "msgspec", "numpy", "rpyc"})
