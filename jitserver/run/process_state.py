"""Global state of a process: what the import of a module can change for code that does not import the module.

`docs/command-line.md` lists it. Some of it must stay as it is. To the rest a module may add what is its own: loggers,
finders of its own modules, functions that pickle its classes. What was there before must stay, in its order.
"""

import builtins
import contextlib
import copyreg
import csv
import decimal
import faulthandler
import gc
import locale
import logging
import os
import resource
import signal
import socket
import sys
import threading
import time
import tracemalloc
import types
import warnings
from collections.abc import Callable, Iterable, Mapping
from operator import is_
from os import listdir  # an import may patch `os`
from typing import Any

from jitclient.capture.user_code.installed import OWN_PACKAGES
from jitserver.run import process_facts


class ProcessState:
    """Global state of this process at one moment.

    Attributes:
        native_threads: number of threads, those of native code included.
        printed_bytes: size of the file that standard output is redirected to.
    """

    def __init__(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        self.native_threads = len(listdir("/proc/self/task"))
        self.printed_bytes = os.fstat(1).st_size
        self._fixed = {name: get() for name, get in _FIXED.items()} | _settings_of_jax()
        self._settings = _settings_of_packages()
        self._growing = {name: get() for name, get in _GROWING.items()}
        self._ordered = {name: _same(get()) for name, get in _ORDERED.items()}
        self._modules = {name: _look(name, module) for name, module in _modules()}
        self._containers = {name: look.containers() for name, look in self._modules.items() if _is_of_python(name)}
        self._classes = {cls: _look(cls, cls) for look in self._modules.values() for cls in look.own_classes}

    def changes(self, now: "ProcessState", package: str) -> list[str]:
        """Return what is different now, by subject, but for native threads and printed output.

        Args:
            now: the state after an import.
            package: the package that was imported; it may change its own functions.
        """
        fixed = {**_jax_after_import, **self._fixed}
        changed = [name for name, value in fixed.items() if now._fixed.get(name, value) != value]
        for owner, settings in now._settings.items():
            before = self._settings.get(owner)
            if before is not None:
                changed += [name for name, value in before.items() if settings.get(name) != value]
            elif owner != package:
                # Another package has imported the owner: it may have changed these settings or not.
                changed += [next(iter(settings))]
        for name, entries in self._growing.items():
            others = {key: value for key, value in entries.items() if not _is_of(package, key)}
            changed += [name] if any(now._growing[name].get(key) != value for key, value in others.items()) else []
        for name, kept in self._ordered.items():
            changed += [name] if [each for each in now._ordered[name] if each in kept] != list(kept) else []
        for name, look in {**_python_after_import, **self._modules}.items():
            found = now._modules.get(name, look)
            if _is_of_python(name):
                changed += [f"{name}.{each}" for each in _differing(look.content, found.content)]
            elif not _is_of(package, name):
                changed += [f"{name}.{each}" for each in _rebound(look, found)]
        for name, before in {**_containers_after_import, **self._containers}.items():
            changed += [f"{name}.{each}" for each in _differing(before, now._containers.get(name, before))]
        for cls, look in {**_classes_after_import, **self._classes}.items():
            changed += [f"{cls.__module__}.{cls.__qualname__}.{each}" for each in _rebound(look, _look(cls, cls))]
        return changed


class _Same:
    """Object that equals only itself: `==` of any two objects may fail, or hold for two that differ in use."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._value is other._value

    def __hash__(self) -> int:
        return id(self._value)


def _same(values: Iterable[object]) -> tuple[_Same, ...]:
    return tuple(map(_Same, values))


def finders() -> list[object]:
    """Return the finders of imports, without those of jitclient, which wait for jax."""
    return [each for each in sys.meta_path if type(each).__module__.partition(".")[0] not in OWN_PACKAGES]


def _streams() -> list[tuple[object, ...]]:
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return [(_Same(stream), stream.line_buffering, process_facts.stream_settings(stream)) for stream in streams]


def _open_files() -> list[str]:
    """Return the open file descriptors with their files, but for the one that lists them."""
    found = []
    for number in sorted(map(int, listdir("/proc/self/fd"))):
        with contextlib.suppress(OSError):
            found.append(f"{number} {os.readlink(f'/proc/self/fd/{number}')}")
    return found


_THREE = 3.0
"""Operand of results that Python computes when they are asked for, not when it compiles this file."""


def _arithmetic() -> list[float]:
    """Return results that differ if native code has changed how the processor rounds, or treats tiny numbers."""
    third, least = 1 / _THREE, sys.float_info.min / _THREE
    return [third, -third, least, least * _THREE]


def _status(field: str) -> str:
    with open("/proc/self/status") as status:
        return next((line for line in status if line.startswith(field)), "")


def limits() -> tuple[object, ...]:
    """Return the limits of this process's resources, in a fixed order."""
    names = sorted(name for name in dir(resource) if name.startswith("RLIMIT_"))
    return tuple(resource.getrlimit(getattr(resource, name)) for name in names)


def _interpreter() -> tuple[object, ...]:
    settings = ("dont_write_bytecode", "pycache_prefix", "tracebacklimit", "ps1", "ps2", "executable")
    return (
        *(getattr(sys, name, None) for name in settings),
        *(list(sys.argv), getattr(sys, "__interactivehook__", None)),
        *(sys.getrecursionlimit(), sys.getswitchinterval(), sys.get_int_max_str_digits(), sys.getdlopenflags()),
        *(sys.get_coroutine_origin_tracking_depth(), _same(sys.get_asyncgen_hooks())),
    )


def _hooks() -> tuple[_Same, ...]:
    """Return the hooks that are not functions of a module, whose replacement would show as such."""
    return _same([sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile()])


def _wide_filters() -> list[tuple[object, ...]]:
    """Return the filters that apply to warnings of any code: those without a message, a module or an own class."""
    return [
        (action, category, line)
        for action, message, category, module, line in warnings.filters
        if message is None and module is None and category.__module__ == "builtins"
    ]


def _of_logger(logger: logging.Logger) -> tuple[object, ...]:
    settings = logger.level, logger.disabled, logger.propagate, type(logger)
    return *settings, _same(logger.handlers), _same(logger.filters)


def _logging() -> tuple[object, ...]:
    return _of_logger(logging.root), logging.root.manager.disable


def _start_method() -> object:
    multiprocessing: Any = sys.modules.get("multiprocessing")
    return multiprocessing.get_start_method(allow_none=True) if multiprocessing is not None else None


_FIXED: Mapping[str, Callable[[], Any]] = {
    "the standard streams": _streams,
    # Reads of `os.environ` are watched during imports.
    "environment variables": lambda: dict(os.environb),
    # A process that imports nothing would have fewer, and other numbers for the files that it opens.
    "open file descriptors": _open_files,
    "arithmetic of the processor": _arithmetic,
    # `os.getcwd` is watched during imports.
    "the working directory": lambda: os.readlink("/proc/self/cwd"),
    "the umask": lambda: _status("Umask"),
    "resource limits": limits,
    "the processors or the priority": lambda: (os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0)),
    "the locale": lambda: locale.setlocale(locale.LC_ALL),
    "the time zone": lambda: time.tzname,
    "signal handlers": lambda: _same(signal.getsignal(number) for number in sorted(signal.valid_signals())),
    "blocked signals": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ()),
    "timers": lambda: [signal.getitimer(which) for which in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL)],
    "faulthandler": faulthandler.is_enabled,
    "hooks of the interpreter": _hooks,
    "settings of the interpreter": _interpreter,
    "builtins": lambda: vars(builtins).keys() - {"_"},
    "warning filters": _wide_filters,
    "logging": _logging,
    "garbage collection": lambda: (gc.isenabled(), gc.get_threshold(), gc.get_debug()),
    "tracemalloc": tracemalloc.is_tracing,
    "decimal's context": lambda: (repr(decimal.getcontext()), repr(decimal.DefaultContext)),
    "the start method of multiprocessing": _start_method,
    "the timeout of sockets": socket.getdefaulttimeout,
    "dialects of csv": lambda: (csv.list_dialects(), csv.field_size_limit()),
}

_GROWING: Mapping[str, Callable[[], Mapping[Any, Any]]] = {
    "loggers": lambda: {
        name: _of_logger(logger)
        for name, logger in dict(logging.root.manager.loggerDict).items()
        if isinstance(logger, logging.Logger)
    },
    "how objects are pickled": lambda: {cls: _Same(reduce) for cls, reduce in copyreg.dispatch_table.items()},
}

_ORDERED: Mapping[str, Callable[[], Iterable[object]]] = {
    "import hooks": finders,
    "callbacks of garbage collection": lambda: gc.callbacks,
}


def _settings_of_packages() -> dict[str, dict[str, object]]:
    """Return the settings of those packages that are imported, by package. Helpers import them before all others."""
    found: dict[str, dict[str, object]] = {}
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        settings = numpy.geterr(), _Same(numpy.geterrcall()), repr(numpy.get_printoptions())
        found["numpy"] = {"numpy's settings": settings}
    matplotlib: Any = sys.modules.get("matplotlib")
    if matplotlib is not None and hasattr(matplotlib, "rcParams"):
        # Its own look-up would choose a backend.
        found["matplotlib"] = {"matplotlib's rcParams": repr(sorted(dict.items(matplotlib.rcParams)))}
    pandas: Any = sys.modules.get("pandas._config.config")
    if pandas is not None:
        found["pandas"] = {"pandas' options": repr(pandas._global_config)}
    return found


def _settings_of_jax() -> dict[str, object]:
    """Return JAX's settings, if it is imported."""
    config = getattr(sys.modules.get("jax"), "config", None)
    return {f"JAX's setting {name}": value for name, value in getattr(config, "values", {}).items()}


_jax_after_import: dict[str, object] = {}
"""JAX's settings as they were when its import had finished, before a package that has imported it could change them."""


_python_after_import: dict[str, "_Look"] = {}
"""Modules of Python at the end of their imports, before what imported them could change them."""

_containers_after_import: dict[str, dict[str, object]] = {}
_classes_after_import: dict[type, "_Look"] = {}
"""Their containers and their classes at the same moment."""


def note_imports(names: Iterable[str]) -> None:
    """Note the state of JAX and of modules of Python once their imports have finished; call this after each import.

    Args:
        names: modules that were imported.
    """
    if "jax" in sys.modules and not _jax_after_import and _is_imported(sys.modules["jax"]):
        _jax_after_import.update(_settings_of_jax())
    for name in names:
        module = sys.modules.get(name)
        is_new = name not in _python_after_import and _is_of_python(name)
        if is_new and type(module) is types.ModuleType and _is_imported(module):
            look = _python_after_import[name] = _look(name, module)
            _containers_after_import[name] = look.containers()
            _classes_after_import.update((cls, _look(cls, cls)) for cls in look.own_classes)


def _is_imported(module: types.ModuleType) -> bool:
    return not getattr(module.__spec__, "_initializing", False)


def _is_of(package: str, key: object) -> bool:
    """Return whether a dotted name belongs to a package."""
    return isinstance(key, str) and key.partition(".")[0] == package


def _modules() -> list[tuple[str, types.ModuleType]]:
    """Return the loaded modules, but for those that are not modules at all."""
    return [(name, module) for name, module in dict(sys.modules).items() if type(module) is types.ModuleType]


_WORKING_STATE = frozenset(
    [
        *("copyreg.dispatch_table", "copy.dispatch_table", "pickle.dispatch_table", "warnings.filters", "gc.callbacks"),
        *("sys.modules", "sys.meta_path", "sys.path_importer_cache", "time.tzname"),
        *("logging._handlerList", "sysconfig._CONFIG_VARS", "linecache.cache"),
        *("tempfile.tempdir", "tempfile._name_sequence"),
        *("threading._active", "threading._dangling", "threading._shutdown_locks", "threading._threading_atexits"),
        *("typing._overload_registry", "typing._cleanups", "gettext._translations"),
        *("inspect.modulesbyfile", "inspect._filesbymodname", "importlib._bootstrap._module_locks"),
    ]
)
"""Names of modules of Python that are subjects of their own, or whose values change as Python works."""


def _is_of_python(name: str) -> bool:
    """Return whether a module is a public one of the standard library."""
    return name.partition(".")[0] in sys.stdlib_module_names and not name.startswith(("_", "posix"))


class _Look:
    """Names of a module or a class at one moment.

    Attributes:
        names: what they stand for.
        content: of a module of Python, that which is no container, comparable with `==`.
        own_classes: classes of a module of the standard library.
    """

    def __init__(self, name: object, owner: types.ModuleType | type) -> None:
        self.names = dict(vars(owner))
        self.content: dict[str, object] = {}
        self.own_classes: list[type] = []
        self._containers: dict[str, Any] = {}
        # The name under which it is loaded: those of the import system call themselves otherwise than their classes do.
        if not isinstance(name, str) or name.partition(".")[0] not in sys.stdlib_module_names:
            return
        self.own_classes = [cls for cls in self.names.values() if isinstance(cls, type) and cls.__module__ == name]
        if not _is_of_python(name):
            return
        for key, value in self.names.items():
            if f"{owner.__name__}.{key}" in _WORKING_STATE or key.startswith("__"):
                continue
            if callable(value) or "cache" not in key:
                if isinstance(value, dict | list | set):
                    self._containers[key] = value
                else:
                    self.content[key] = value if isinstance(value, bool | int | str | bytes) else _Same(value)

    def is_current(self, owner: types.ModuleType | type) -> bool:
        """Return whether no name has been bound again."""
        names = vars(owner)
        is_same_size = len(self.names) == len(names)
        return is_same_size and all(map(is_, self.names, names)) and all(map(is_, self.names.values(), names.values()))

    def containers(self) -> dict[str, object]:
        """Return what the containers of a module of Python have now, comparable with `==`."""
        found = self._containers.items()
        return {key: list(map(id, (*each, *each.values()) if isinstance(each, dict) else each)) for key, each in found}


_looks: dict[object, _Look] = {}


def _look(name: object, owner: types.ModuleType | type) -> _Look:
    """Return the names of a module or a class, an earlier look if nothing has changed: that is far cheaper."""
    found = _looks.get(name)
    if found is None or not found.is_current(owner):
        found = _looks[name] = _Look(name, owner)
    return found


def _differing(before: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    return [] if now is before else [name for name, value in before.items() if now.get(name) != value]


def _rebound(before: _Look, now: _Look) -> list[str]:
    """Return the names of functions, methods and classes that have another value."""
    if now is before:
        return []
    changed = {name: value for name, value in before.names.items() if now.names.get(name) is not value}
    return [name for name, value in changed.items() if callable(value) or isinstance(value, classmethod | property)]
