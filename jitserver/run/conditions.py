"""Conditions under which imports do in a run what they did in its helper, but for the variables that they read."""

import builtins
import ctypes
import itertools
import logging
import os
import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from jitclient.capture.user_code.installed import OWN_PACKAGES
from jitserver.run import process_facts
from jitserver.run.process_state import finders, limits


def _reporting() -> list[object]:
    """Return the filters that may show a warning or raise it."""
    return [each for each in warnings.filters if each[0] != "ignore"]


_TRACERS = (sys.gettrace, sys.getprofile, threading.gettrace, threading.getprofile)


def _not_ours(get: Callable[[], Any]) -> Any:
    """Return a function that traces code, but not that which observes a trace of JAX's, within which imports happen."""
    found = get()
    return None if str(getattr(found, "__module__", "")).partition(".")[0] in OWN_PACKAGES else found


_WITHOUT_ACCELERATORS = frozenset({"numpy"})
"""Packages that no variable about accelerators concerns: helpers import them even before they know of jax."""

_FILTERS = "the filters of warnings"
_OF_ALL: Mapping[str, Callable[[], Any]] = {
    "how imports are done": lambda: (builtins.__import__, *sys.path_hooks),
    "how imports are traced": lambda: tuple(map(_not_ours, _TRACERS)),
    "the class of loggers": logging.getLoggerClass,
}
# Modules of Python that warn when they are imported are left to the runs, and its native code uses no accelerator.
_OF_PACKAGES: Mapping[str, Callable[[], Any]] = {_FILTERS: _reporting}
_OF_NATIVE: Mapping[str, Callable[[], Any]] = {
    "the processors that it may use": lambda: os.sched_getaffinity(0),
    "the limits of its resources": limits,
    "how native libraries are loaded": sys.getdlopenflags,
}


def _environment() -> dict[str, str]:
    """Return the environment variables that native code finds: `os.putenv` changes them, and not `os.environ`."""
    found: Any = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
    items = (os.fsdecode(item).partition("=") for item in itertools.takewhile(bool, found))
    return {name: value for name, _, value in items}


class Conditions:
    """Conditions of this moment."""

    def __init__(self) -> None:
        self._values = {name: get() for name, get in {**_OF_ALL, **_OF_PACKAGES, **_OF_NATIVE}.items()}
        self._variables = process_facts.native_variables(_environment())
        self._finders = finders()

    def allow(self, written: Mapping[str, str | None], added: Sequence[object]) -> None:
        """Take over what imports have set: variables, the filters of warnings, and finders that they have added."""
        self._finders += added
        self._values[_FILTERS] = _reporting()
        self._variables = {**self._variables, **process_facts.native_variables(written)}

    def new_finders(self) -> list[Any]:
        """Return the finders that have been added since then."""
        return [each for each in finders() if each not in self._finders]

    def changed(self, packages: Set[str], native: Set[str]) -> str:
        """Return a condition that has changed since then; empty if there is none.

        Args:
            packages: the packages that are to be imported, without those of Python.
            native: those of them whose native code is to be imported.
        """
        conditions = {**_OF_ALL, **(_OF_PACKAGES if packages else {}), **(_OF_NATIVE if native else {})}
        for name, get in conditions.items():
            now = get()
            if now != self._values[name]:
                return name
        now = process_facts.native_variables(_environment())
        names = sorted(name for name in {*now, *self._variables} if now.get(name) != self._variables.get(name))
        if native <= _WITHOUT_ACCELERATORS:
            names = [name for name in names if not name.startswith(process_facts.ACCELERATOR_PREFIXES)]
        return f"the variable {names[0]}" if names and native else ""
