"""Watch over imports in an audit: what they read, set, look up and register, and which modules import which.

It replaces functions of Python for the rest of the process, which only audits may do (`audit.py`).
"""

import builtins
import codecs
import functools
import importlib
import importlib.util
import io
import logging
import os
import random
import sys
import types
import warnings
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from importlib.machinery import BYTECODE_SUFFIXES, ExtensionFileLoader, ModuleSpec
from itertools import islice
from types import CodeType
from typing import Any

from jitclient.capture.user_code.installed import OWN_PACKAGES, stored
from jitclient.core.file_stamp import FileStamp, file_stamp
from jitserver.run import process_facts, process_state
from jitserver.run.additions import RELATIONS_OF_LOGGERS, add_filter, put_filters
from jitserver.run.verdict import Access, Filter, Verdict, kind_of_file, with_prefix

CWD_ATTRIBUTES = {"multiprocessing.process": "ORIGINAL_DIR", "rich": "_IMPORT_CWD"}
"""Modules that store the working directory of their import, and the names under which they store it."""

_CWD_READERS = (*CWD_ATTRIBUTES, "tempfile")
"""Modules that may ask for the working directory: their stored value is corrected, or used as a last resort only."""

_ITERATES = {"tqdm.utils": "TQDM_"}
"""Modules that iterate over all environment variables, and the prefix of the names that they look for."""

_SYSTEM_DIRECTORIES = ("/dev/", "/proc/", "/sys/")
"""Directories of system files, which have no lasting modification times and change only with the machine."""

_BETWEEN = ("_collections_abc", "collections.abc", "genericpath", "os", "pathlib", "posixpath", __name__)
"""Modules through which others look up files and variables."""

_REGISTERS = (
    (codecs, "register", "a codec"),
    (codecs, "register_error", "a handler of errors of codecs"),
)
"""Functions that register something in the interpreter, which cannot be asked for it, or cannot remove it."""

_CHANGES_OF_LOGGERS = ("addHandler", "removeHandler", "addFilter", "removeFilter")
"""Methods that change a logger without setting an attribute."""

_bootstrap: Any = importlib._bootstrap
"""Python's own import system, in which `importlib.import_module` looks up its function."""

_ModuleSpec: Any = ModuleSpec
_FileLoader: Any = vars(importlib)["_bootstrap_external"].FileLoader
_COMPILED = tuple(BYTECODE_SUFFIXES)
_warnings: Any = warnings

_NATIVE_LOADERS: Mapping[CodeType, Callable[[Mapping[str, Any]], str]] = {
    ExtensionFileLoader.create_module.__code__: lambda variables: str(variables["spec"].name),
    ExtensionFileLoader.exec_module.__code__: lambda variables: str(variables["module"].__name__),
}
"""Functions of Python in which modules of native code run when they are imported; and whose import it is."""

_CALLER_OF_LOADERS: CodeType = _bootstrap._call_with_frames_removed.__code__
"""Function of Python through which those functions call native code."""


class ImportWatch:
    """Watch over the imports of this process, from now to its end.

    Attributes:
        verdict: what was found.
        problem: why the last import must be left to the runs; empty if nothing was found.
    """

    def __init__(self, terminal: bool) -> None:
        """Begin.

        Args:
            terminal: whether imports see the standard streams as terminals.
        """
        self.verdict = Verdict()
        self.problem = ""
        self._terminal = terminal
        self._is_importing = False
        self._environment = dict(os.environ)
        self._batch = 0
        self._written: dict[str, frozenset[str]] = {}
        self._iterated = ""
        self._own_filters = list(warnings.filters)
        self._new_filters: list[tuple[str, tuple[Any, ...], bool]] = []
        self._read: set[str] = set()
        # Stamp first, so that packages that are installed during the imports show as changes.
        self._stamp(path for path in sys.path if path)
        for watch in (self._imports, self._variables, self._files, self._terminals, self._loggers, self._others):
            watch()
        _watch_found_imports(self.verdict.add_import)

    def observe(self, name: str) -> None:
        """Import a module, and let the next import find variables and filters as if it was the first.

        Sets `problem`.

        Raises:
            BaseException: what the import raises.
        """
        self.problem = ""
        self._is_importing = True
        try:
            importlib.import_module(name)
        finally:
            self._is_importing = False
        self._revert_variables()
        self._revert_filters(name)
        self._stamp(self._paths())

    # ---- which modules import which

    def _imports(self) -> None:
        own = builtins.__import__, _bootstrap._gcd_import

        # Names and order of the arguments are Python's.
        def import_(
            name: str,
            globals: Mapping[str, Any] | None = None,
            locals: Mapping[str, Any] | None = None,
            fromlist: Sequence[str] | None = (),
            level: int = 0,
        ) -> Any:
            loaded = len(sys.modules)
            try:
                return own[0](name, globals, locals, fromlist or (), level)
            finally:
                self._note_import(_absolute(name, globals or {}, level), fromlist or (), loaded)

        def import_module(name: str, package: Any = None, level: int = 0) -> Any:
            loaded = len(sys.modules)
            try:
                return own[1](name, package, level)
            finally:
                self._note_import(_absolute(name, {"__package__": package}, level), (), loaded)

        _put(builtins, "__import__", import_)
        _put(_bootstrap, "_gcd_import", import_module)

    def _note_import(self, name: str, parts: Iterable[str], loaded: int) -> None:
        if "*" in parts:
            # Python looks at each of these names, which may load a part.
            parts = getattr(sys.modules.get(name), "__all__", ())
        parts = [inner for part in parts if (inner := f"{name}.{part}") in sys.modules]
        # Native code imports modules without a call of `__import__`.
        new = islice(reversed(sys.modules), max(len(sys.modules) - loaded, 0))
        imported = [name, *parts, *new]
        self.verdict.add_import(_imported_now(), imported)
        process_state.note_imports(imported)

    # ---- environment variables

    def _variables(self) -> None:
        kind: Any = os._Environ
        own_get, own_set, own_delete, own_iterate = (
            getattr(kind, f"__{name}__") for name in ("getitem", "setitem", "delitem", "iter")
        )

        # The methods, not the class: an import may store `type(os.environ)`. `os.environb` has the same class.
        def get_item(environ: Any, key: Any) -> Any:
            # `items` looks up each name that `__iter__` yields: those are in the log.
            if environ is os.environ and isinstance(key, str) and key != self._iterated:
                self._note_access(key, _value_of(key))
            return own_get(environ, key)

        def set_item(environ: Any, key: Any, value: Any) -> None:
            own_set(environ, key, value)
            if environ is os.environ:
                self._note_access(key, value, is_write=True)

        def delete_item(environ: Any, key: Any) -> None:
            own_delete(environ, key)
            if environ is os.environ:
                self._note_access(key, None, is_write=True)

        def iterate(environ: Any) -> Iterator[Any]:
            if environ is not os.environ or not self._is_importing:
                yield from own_iterate(environ)
                return
            running = _running_modules(_BETWEEN)
            prefix = next((prefix for module, prefix in _ITERATES.items() if module in running), None)
            if prefix is None:
                self.problem = "reads all environment variables"
            else:
                found = with_prefix(prefix, {name: _value_of(name) or "" for name in own_iterate(environ)})
                self._note_access(prefix, found)
            for key in own_iterate(environ):
                self._iterated = key
                yield key
            self._iterated = ""

        for name, function in {"getitem": get_item, "setitem": set_item, "delitem": delete_item}.items():
            _put(kind, f"__{name}__", function)
        _put(kind, "__iter__", iterate)

    def _note_access(self, name: str, value: str | dict[str, str] | None, is_write: bool = False) -> None:
        if not self._is_importing:
            return
        running = _running_modules(_BETWEEN)
        # Each run reads our settings again; those that imports depend on select the helper.
        if running[:1] == ["jitclient.core.settings"] and not process_facts.native_variables({name: value}):
            return
        imported = running[-1] if running else ""
        self.verdict.accesses.append(Access(name, value, sorted({*running}), imported, self._batch, is_write))
        if is_write:
            self._written.setdefault(name, frozenset(sys.modules))
        elif isinstance(value, dict):
            self.verdict.variables |= with_prefix(name, self._environment)
        else:
            self.verdict.variables[name] = self._environment.get(name)

    def _revert_variables(self) -> None:
        """Undo what the last import set.

        The modules that were imported after a variable was set may have read it unnoticed, by native code.
        """
        for name, loaded in self._written.items():
            later = [
                each
                for each in sys.modules
                if each not in loaded and each.partition(".")[0] not in sys.stdlib_module_names
            ]
            self.verdict.accesses.append(Access(name, _value_of(name), later, "", self._batch, False))
            self.verdict.variables[name] = self._environment.get(name)
            if name in self._environment:
                os.environ[name] = self._environment[name]
            else:
                os.environ.pop(name, None)
        self._written.clear()
        self._batch += 1

    # ---- files

    def _files(self) -> None:
        own_getcwd, own_stat, own_open = os.getcwd, os.stat, builtins.open
        own_listdir, own_scandir, own_os_open = os.listdir, os.scandir, os.open
        own_get_data = _FileLoader.get_data

        def note_path(path: Any, is_read: bool) -> None:
            if self._is_importing and isinstance(path, str | bytes | os.PathLike):
                name = os.fsdecode(path)
                if not os.path.isabs(name):
                    if name not in self.verdict.relative:
                        self.verdict.relative.append(name)
                elif is_read:
                    self._read.add(name)
                elif name not in self.verdict.kinds:
                    self.verdict.kinds[name] = -1
                    self.verdict.kinds[name] = kind_of_file(name)

        def getcwd() -> str:
            caller = _caller()
            if self._is_importing and caller == "tempfile":
                self.verdict.temporary += [name for name in _running_modules() if name not in self.verdict.temporary]
            if self._is_importing and caller not in _CWD_READERS:
                self.problem = "reads the working directory"
            return own_getcwd()

        def stat(path: Any, **options: Any) -> Any:
            note_path(path, False)
            return own_stat(path, **options)

        def listdir(path: Any = ".") -> Any:
            note_path(path, True)
            return own_listdir(path)

        def scandir(path: Any = ".") -> Any:
            note_path(path, True)
            return own_scandir(path)

        def open(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
            # Nothing is read of a file that is made, as tempfile does in a directory that changes all the time.
            if mode[:1] not in ("w", "x"):
                note_path(file, True)
            return own_open(file, mode, *arguments, **options)

        def os_open(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
            if not options and not flags & (os.O_CREAT | os.O_WRONLY):
                note_path(path, True)
            return own_os_open(path, flags, *arguments, **options)

        def get_data(loader: Any, path: str) -> bytes:  # also for `pkgutil.get_data`
            if not path.endswith(_COMPILED):
                note_path(path, True)
            found: bytes = own_get_data(loader, path)
            return found

        for function in (getcwd, stat, listdir, scandir):
            _put(os, function.__name__, function)
        _put(os, "open", os_open)
        _put(_FileLoader, "get_data", get_data)
        for module in (builtins, io):
            _put(module, "open", open)

    def _stamp(self, paths: Iterable[str]) -> None:
        """Stamp the paths that have no stamp yet, and keep earlier stamps, so that later changes show."""
        stamps: dict[str, FileStamp] = self.verdict.files
        for path in paths:
            if path not in stamps:
                stamps[path] = file_stamp(path)

    def _paths(self) -> set[str]:
        modules = list(sys.modules.values())
        paths = {file for module in modules if isinstance(file := stored(module, "__file__"), str)}
        directories = {directory for module in modules for directory in _directories_of(module)}
        return paths | directories | {path for path in self._read if not path.startswith(_SYSTEM_DIRECTORIES)}

    # ---- terminals

    def _terminals(self) -> None:
        own_isatty, own_size = os.isatty, os.get_terminal_size

        def isatty(number: int) -> bool:
            if number not in range(3):
                return own_isatty(number)
            if self._is_importing:
                askers = self.verdict.askers.setdefault(number, [])
                askers += [name for name in _running_modules() if name not in askers]
            return self._terminal

        def get_terminal_size(number: int = 1) -> Any:
            # Without a terminal, each run gets the same error.
            if isatty(number) and self._is_importing:
                self.problem = "asks how large the terminal is"
            return own_size(number)

        _put(os, "isatty", isatty)
        _put(os, "get_terminal_size", get_terminal_size)
        for number, stream in enumerate((sys.stdin, sys.stdout, sys.stderr)):
            _put(stream, "isatty", functools.partial(isatty, number))

    # ---- loggers and filters of warnings

    def _loggers(self) -> None:
        manager: Any = logging.root.manager
        own_get, own_is_enabled_for = manager.getLogger, logging.Logger.isEnabledFor

        def get_logger(name: str) -> logging.Logger:
            if self._is_importing:
                names = self.verdict.loggers.setdefault(_imported_now(), [])
                names += [] if name in names else [name]
            found: logging.Logger = own_get(name)
            return found

        def is_enabled_for(logger: logging.Logger, level: int) -> bool:
            is_shown = own_is_enabled_for(logger, level)
            if self._is_importing:
                messages = self.verdict.messages.setdefault(_imported_now(), [])
                messages += [] if (logger.name, level, is_shown) in messages else [(logger.name, level, is_shown)]
            return is_shown

        def note(logger: logging.Logger) -> None:
            name = getattr(logger, "name", "")
            # A logger that is being made is not there yet.
            if self._is_importing and manager.loggerDict.get(name) is logger:
                modules = self.verdict.set_by.setdefault(name, [])
                modules += [] if _imported_now() in modules else [_imported_now()]

        def noting(method: Callable[..., None]) -> Callable[..., None]:
            def change(logger: logging.Logger, *arguments: Any) -> None:
                note(logger)
                method(logger, *arguments)

            return change

        def set_attribute(logger: logging.Logger, name: str, value: object) -> None:
            if name not in RELATIONS_OF_LOGGERS:
                note(logger)
            object.__setattr__(logger, name, value)

        _put(manager, "getLogger", get_logger)
        _put(logging.Logger, "isEnabledFor", is_enabled_for)
        _put(logging.Logger, "__setattr__", set_attribute)
        for name in _CHANGES_OF_LOGGERS:
            _put(logging.Logger, name, noting(getattr(logging.Logger, name)))
        own_add = _warnings._add_filter

        def add_filter(*item: Any, append: bool) -> None:
            own_add(*item, append=append)
            self._new_filters.append((_imported_now(), item, append))

        _put(warnings, "_add_filter", add_filter)

    def _revert_filters(self, name: str) -> None:
        """Remove the filters that the last import has added. Sets `problem` if a run could not add them again."""
        found = list(warnings.filters)
        # Others were for a block of code only.
        lasting = {item: (module, append) for module, item, append in self._new_filters if item in found}
        self._new_filters.clear()
        added = [_described(*lasting[item], item) for item in lasting if item not in self._own_filters]
        put_filters(self._own_filters)
        for each in added:
            if each is None or not add_filter(each):
                self.problem = self.problem or "adds a filter of warnings of its own class"
        if list(warnings.filters) != found:
            self.problem = self.problem or "changes warning filters"
        self._new_filters.clear()
        put_filters(self._own_filters)
        self.verdict.filters += [each for each in added if each is not None]

    # ---- others

    def _others(self) -> None:
        def registering(function: Callable[..., Any], thing: str) -> Callable[..., Any]:
            def register(*arguments: Any) -> Any:
                if self._is_importing and not _is_own_code():
                    self.problem = f"registers {thing}"
                return function(*arguments)

            return register

        for module, name, thing in _REGISTERS:
            _put(module, name, registering(getattr(module, name), thing))
        own_addaudithook = sys.addaudithook

        def addaudithook(hook: Any) -> None:
            if not self._is_importing or _is_own_code():
                own_addaudithook(hook)
            elif getattr(hook, "__module__", None) != _imported_now():
                self.problem = "registers an audit hook of another module"
            # Otherwise a run registers it: the interpreter cannot remove one, which the next import would have.

        _put(sys, "addaudithook", addaudithook)
        own_seed = random.Random.seed

        def seed(generator: random.Random, a: Any = None, version: int = 2) -> None:
            own_seed(generator, a, version)
            is_common = generator is random._inst
            is_of_system = isinstance(generator, random.SystemRandom) or _caller() == "tempfile"
            if self._is_importing and is_common:
                self.problem = "seeds random numbers"
            elif self._is_importing and a is None and not is_of_system:
                self.problem = "makes random numbers that would be the same in all runs"

        _put(random.Random, "seed", seed)
        # Bound to the original method when `random` was imported.
        _put(random, "seed", types.MethodType(seed, random._inst))
        arguments = vars(sys).pop("argv")

        # Each look-up: an import that keeps the list, as in a default argument, would have the helper's in each run.
        # Python calls this function for an attribute that is not there. A class of its own for the module would be that
        # of others, too: Python makes each module with `type(sys)`.
        def look_up(attribute: str) -> Any:
            if attribute != "argv":
                raise AttributeError(f"module 'sys' has no attribute {attribute!r}", name=attribute, obj=sys)
            if self._is_importing and not _is_own_code():
                self.problem = "reads the arguments of the program"
            return arguments

        vars(sys)["__getattr__"] = look_up


def _described(module: str, append: bool, item: tuple[Any, ...]) -> Filter | None:
    """Return the description of a filter, or None if it cannot be described."""
    action, message, category, where, line = item
    patterns = [None if each is None else (each.pattern, each.flags) for each in (message, where)]
    own = Filter(module, action, patterns[0], (category.__module__, category.__qualname__), patterns[1], line, append)
    return own if isinstance(action, str) and isinstance(line, int) else None


def _put(owner: Any, name: str, function: Any) -> None:
    """Let `owner.name` be this function, which looks like the one that was there."""
    if isinstance(function, types.FunctionType):
        # An import may store its name, as `functools.wraps` does.
        functools.update_wrapper(function, getattr(owner, name))
    setattr(owner, name, function)


def _absolute(name: str, namespace: Mapping[str, Any], level: int) -> str:
    """Return the full name of a module that code in a namespace imports."""
    package = namespace.get("__package__") or str(namespace.get("__name__")).rpartition(".")[0]
    try:
        return importlib.util.resolve_name("." * level + name, package) if level else name
    except ImportError:  # the import has failed for the same reason
        return name


def _watch_found_imports(note: Callable[[str, list[str]], None]) -> None:
    """Call a function with the importer and the name at each import by native code that finds a module loaded.

    Such an import is a look-up in `sys.modules`, after which Python asks the module's spec whether the module is still
    being imported.
    """

    def is_initializing(spec: ModuleSpec) -> bool:
        frame: Any = sys._getframe(1)
        # Python calls functions of loaders through one of its own.
        native = _NATIVE_LOADERS.get(frame.f_back.f_code) if frame.f_code is _CALLER_OF_LOADERS else None
        if native is not None:
            note(native(frame.f_back.f_locals), [spec.name])
        return bool(vars(spec).get("_initializing"))

    def set_initializing(spec: ModuleSpec, value: bool) -> None:
        vars(spec)["_initializing"] = value

    _ModuleSpec._initializing = property(is_initializing, set_initializing)


def _imported_by(frame: Any) -> str:
    """Return the name of the module whose import runs in a frame: its own code, or its loader if that is native code.

    Empty if none does.
    """
    code = frame.f_code
    if code.co_name == "<module>":
        # Not the property that watches look-ups of it.
        is_importing = getattr(frame.f_globals.get("__spec__"), "__dict__", {}).get("_initializing")
        return str(frame.f_globals["__name__"]) if is_importing else ""
    native = _NATIVE_LOADERS.get(code)
    return "" if native is None else native(frame.f_locals)


def _frames() -> Iterator[Any]:
    """Yield the frames that run, the innermost first."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _running_modules(skipped: Container[str] = (__name__,)) -> list[str]:
    """Return the modules whose functions run now, the innermost first, and last the one that is being imported.

    Args:
        skipped: modules that are left out.
    """
    running = []
    for frame in _frames():
        imported = _imported_by(frame)
        name = imported or str(frame.f_globals.get("__name__"))
        if name not in skipped:
            running.append(name)
            if imported:
                break
    return running


def _imported_now() -> str:
    """Return the innermost module that is being imported, whose functions or those of others have made a call."""
    return next(filter(None, map(_imported_by, _frames())), "")


def _caller() -> str:
    """Return the name of the calling module, without those through which others call."""
    names = (str(frame.f_globals.get("__name__")) for frame in _frames())
    return next((name for name in names if name not in (*_BETWEEN, "random")), "")


def _is_own_code() -> bool:
    return _caller().partition(".")[0] in OWN_PACKAGES


def _directories_of(module: Any) -> list[str]:
    try:
        return [directory for directory in stored(module, "__path__") or () if isinstance(directory, str)]
    except Exception:  # some modules have odd attributes
        return []


def _value_of(name: str) -> str | None:
    value = os.environb.get(os.fsencode(name))
    return None if value is None else os.fsdecode(value)
