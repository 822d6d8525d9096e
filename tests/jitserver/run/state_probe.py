"""Program that prints its whole global state as one line of JSON, by subject: for comparison with plain `python`'s.

Settings of packages are part of the state once the packages are imported.
"""

import asyncio
import builtins
import codecs
import contextlib
import copyreg
import csv
import decimal
import faulthandler
import gc
import http.client
import importlib
import itertools
import json
import locale
import logging
import mimetypes
import multiprocessing
import os
import random
import resource
import shutil
import signal
import socket
import sqlite3
import sys
import tempfile
import threading
import time
import tracemalloc
import types
import urllib.request
import uuid
import warnings
import webbrowser
import xml.etree.ElementTree
import zipfile
from collections.abc import Iterable, Mapping
from typing import Any

COMPARED_MODULES = (http.client, mimetypes, shutil, sqlite3, tempfile, urllib.request, uuid, webbrowser, xml, zipfile)
"""Modules that programs often use, and others may have changed."""

OURS = ("jitclient", "jitserver")
"""Packages whose own objects may be there."""

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_NOT_COMPARED = {
    *("sys.argv", "sys.orig_argv", "sys.path", "sys.path_importer_cache", "sys.modules", "sys.meta_path"),
    *("gc.callbacks", "warnings.filters", "_warnings.filters", "threading._active", "threading._shutdown_locks"),
    *("copyreg.dispatch_table", "copy.dispatch_table", "pickle.dispatch_table", "logging._startTime"),
    *("posix.environ", "logging._handlerList", "threading._threading_atexits"),
    # Filled where jitclient looks for the directories of packages.
    "sysconfig._CONFIG_VARS",
    # These change as soon as anything imports `typing_extensions`, as the command itself does.
    *("typing._overload_registry", "typing._cleanups", "typing._check_generic", "typing._collect_parameters"),
}
"""Names that are subjects of their own, or differ between any two processes."""

_NOT_COMPARED_MODULES = ("_ctypes", "ctypes", "tokenize")
"""Modules with addresses, or with the order of a set."""


def described(value: object, depth: int = 1) -> str:
    """Return a text that is the same in another process for the same object."""
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, itertools.count):
        return repr(value)
    if isinstance(value, types.ModuleType):
        return f"module {value.__name__}"
    if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType | types.MethodType):
        return f"{getattr(value, '__module__', '')}.{value.__qualname__}"
    if depth and isinstance(value, dict):
        return str(sorted(f"{described(key, 0)}: {described(each, 0)}" for key, each in list(value.items())))
    if depth and isinstance(value, list | tuple):
        return str([described(each, depth - 1) for each in value])
    if depth and isinstance(value, set | frozenset):
        return str(sorted(described(each, 0) for each in value))
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _is_ours(value: object) -> bool:
    return described(value).partition(".")[0] in OURS


def _others(values: Iterable[object]) -> list[str]:
    """Describe objects, but for ours and those of packages that are not imported: helpers have imported them."""
    return [described(each) for each in values if not _is_ours(each) and _is_loaded(each)]


def _is_loaded(value: object) -> bool:
    owner = value if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType) else type(value)
    return str(owner.__module__).partition(".")[0] in {*sys.modules, "None"}


def _of_logger(logger: logging.Logger) -> str:
    handlers = [(described(each), each.level, described(each.formatter)) for each in logger.handlers]
    return repr((logger.level, logger.disabled, logger.propagate, described(logger), handlers, _others(logger.filters)))


def _loggers() -> dict[str, str]:
    known = logging.root.manager.loggerDict.items()
    found = {name: _of_logger(each) for name, each in list(known) if isinstance(each, logging.Logger)}
    return {name: each for name, each in found.items() if name.partition(".")[0] not in OURS}


def _filters() -> list[tuple[object, ...]]:
    return [
        (action, _pattern(message), described(category), _pattern(module), line)
        for action, message, category, module, line in warnings.filters
    ]


def _pattern(value: object) -> object:
    return getattr(value, "pattern", value)


def _is_wide(each: tuple[object, ...]) -> bool:
    return each[1] is None and each[3] is None and str(each[2]).startswith("builtins.")


def _streams() -> object:
    names = ("name", "encoding", "errors", "newlines", "line_buffering", "write_through", "mode")
    return [
        [described(each), *(getattr(each, name, None) for name in names)]
        for each in (sys.stdin, sys.stdout, sys.stderr)
    ]


def _descriptors() -> list[str]:
    found = []
    for number in sorted(map(int, os.listdir("/proc/self/fd"))):
        with contextlib.suppress(OSError):
            found.append(f"{number} {os.readlink(f'/proc/self/fd/{number}').partition(':[')[0]}")
    return found


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _arithmetic(least: float) -> list[float]:
    """Divide numbers, a tiny one as well: native code may set how the processor does it."""
    return [least / 3, least / 3 * 3, least / least / 3, -least / least / 3]


def _signals() -> Mapping[str, str]:
    return {
        signal.Signals(number).name if number in set(signal.Signals) else str(number): described(
            signal.getsignal(number)
        )
        for number in signal.valid_signals()
    }


def _is_seeded() -> list[bool]:
    state = random.getstate()
    found = [random.random() == random.Random(5).random()]
    random.setstate(state)
    if "numpy" in sys.modules:
        numpy = importlib.import_module("numpy.random")
        found.append(bool(numpy.get_state()[1][1] == numpy.RandomState(6).get_state()[1][1]))
    return found


def _packages() -> Mapping[str, object]:
    found = {}
    numpy, matplotlib = sys.modules.get("numpy"), sys.modules.get("matplotlib")
    pandas, jax = sys.modules.get("pandas._config.config"), sys.modules.get("jax")
    if numpy is not None:
        found["numpy"] = numpy.geterr(), described(numpy.geterrcall()), repr(numpy.get_printoptions())
    if matplotlib is not None:
        found["matplotlib"] = repr(sorted(dict.items(matplotlib.rcParams)))
    if pandas is not None:
        found["pandas"] = repr(pandas._global_config)
    if jax is not None:
        found["jax"] = {
            name: repr(value) for name, value in sorted(jax.config.values.items()) if name != "jax_platforms"
        }
    return found


def _of_modules() -> dict[str, object]:
    """Return the class of each module, what the names of Python's stand for, and which names are objects of ours."""
    found = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] not in OURS:
            found[f"{name}.__class__"] = described(type(module))
        if isinstance(module, types.ModuleType) and name.partition(".")[0] not in (*OURS, *_NOT_COMPARED_MODULES):
            is_of_python = name.partition(".")[0] in sys.stdlib_module_names
            for key, value in list(vars(module).items()):
                # Hooks of jitclient in jax are there on purpose.
                is_left_over = callable(value) and described(value).startswith("jitserver.")
                if not is_of_python and not is_left_over:
                    continue
                if f"{name}.{key}" not in _NOT_COMPARED and "cache" not in key and not key.startswith("__"):
                    found[f"{name}.{key}"] = described(value)
    return found


def state() -> dict[str, object]:
    """Return the state by subject."""
    return {
        "loggers": _loggers(),
        "root logger": (_of_logger(logging.root), logging.root.manager.disable, logging.getLevelNamesMapping()),
        "classes of logging": _others([logging.getLoggerClass(), logging.getLogRecordFactory(), logging.lastResort]),
        "warning filters": sorted(map(repr, _filters())),
        "wide warning filters": list(filter(_is_wide, _filters())),
        "signal handlers": _signals(),
        "signals": (
            [int(each) for each in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
            signal.getitimer(signal.ITIMER_REAL)[1],
            signal.getitimer(signal.ITIMER_VIRTUAL),
        ),
        "environment": dict(os.environ),
        "working directory": os.getcwd(),
        "umask": _umask(),
        "arithmetic": _arithmetic(sys.float_info.min),
        "limits": [resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")],
        "processors": (sorted(os.sched_getaffinity(0)), os.getpriority(os.PRIO_PROCESS, 0)),
        "locale": (locale.setlocale(locale.LC_ALL), repr(locale.localeconv())),
        "time zone": time.tzname,
        "streams": _streams(),
        "descriptors": _descriptors(),
        "sys.argv": (sys.argv[1:], sys.orig_argv[-len(sys.argv) :][1:], sys.executable, sys.warnoptions),
        "sys.path": sys.path[1:],
        "import hooks": (_others(sys.meta_path), _others(sys.path_hooks)),
        "hooks": _others(
            [sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile(), *sys.get_asyncgen_hooks()]
        ),
        "limits of the interpreter": (
            *(sys.getrecursionlimit(), sys.getswitchinterval(), sys.get_int_max_str_digits(), sys.getdlopenflags()),
            *(sys.flags, getattr(sys, "tracebacklimit", None), sys.get_coroutine_origin_tracking_depth()),
        ),
        "builtins": {name: described(value) for name, value in vars(builtins).items() if not name.startswith("_")},
        "threads": sorted(each.name for each in threading.enumerate()),
        "garbage collection": (gc.isenabled(), gc.get_threshold(), gc.get_debug(), _others(gc.callbacks)),
        "decimal": (repr(decimal.getcontext()), repr(decimal.DefaultContext)),
        "start method": multiprocessing.get_start_method(allow_none=True),
        "asyncio": described(asyncio.get_event_loop_policy()),
        "csv": (csv.list_dialects(), csv.field_size_limit()),
        "codecs": [_has(codecs.lookup, name) for name in ("state_probe", "utf8")],
        "errors of codecs": [_has(codecs.lookup_error, name) for name in ("state_probe", "strict")],
        "copyreg": {
            described(cls): described(reduce) for cls, reduce in copyreg.dispatch_table.items() if _is_loaded(cls)
        },
        "faulthandler": (faulthandler.is_enabled(), tracemalloc.is_tracing()),
        "timeout of sockets": socket.getdefaulttimeout(),
        "random state": _is_seeded(),
        "packages": _packages(),
        "modules of Python": _of_modules(),
    }


def _has(look_up: object, name: str) -> bool:
    try:
        look_up(name)  # type: ignore[operator]
    except LookupError:
        return False
    return True


def differences(expected: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """Return how two states differ, but for modules that one process alone has, and the platform that clients have."""
    texts = []
    for subject, one in expected.items():
        other = found[subject]
        if isinstance(one, dict):
            names = one.keys() & other.keys() if subject == "modules of Python" else one.keys() | other.keys()
            names |= {name for name in other if "jitserver." in other[name]}
            pairs = {f"{subject}: {name}": (one.get(name), other.get(name)) for name in names}
        else:
            pairs = {subject: (one, other)}
        texts += [f"{name}: {here} != {there}" for name, (here, there) in sorted(pairs.items()) if here != there]
    return texts


if __name__ == "__main__":
    print(json.JSONEncoder(default=str).encode(state()))
