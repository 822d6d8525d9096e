"""Execution of a program as by `python` itself: as `__main__`, with its arguments, `sys.path` entry and exit.

A script runs through the function of CPython that `python script.py` calls, a module through the one that `python -m`
calls. The caller's frames lie below the program's on the stack, but the program's tracebacks leave them out.

The functions here add the program's entry to `sys.path`, which must not have an entry for a program yet.
"""

import builtins
import ctypes
import importlib.machinery
import os
import pkgutil
import runpy
import sys
from collections.abc import Sequence
from types import ModuleType

from jitclient.core import compat


def run_script(path: str, arguments: Sequence[str]) -> int:
    """Run a script, or the `__main__.py` of a directory or zip file, as `python path arguments...` would.

    Args:
        path: path of the script, as on a command line.
        arguments: arguments of the program.

    Returns:
        The exit status, which the caller must raise as SystemExit. After an uncaught KeyboardInterrupt, the process
        then exits by SIGINT.

    Raises:
        SystemExit: the program raised it. A script's SystemExit may also exit the process here, as in `python`.
    """
    file = _absolute(path)
    is_container = pkgutil.get_importer(file) is not None
    if is_container:
        sys.path.insert(0, file)
    elif not sys.flags.safe_path:
        sys.path.insert(0, os.path.dirname(os.path.realpath(file)))
    _become_main([path, *arguments])
    return _run_module("__main__", is_named=False) if is_container else _run_file(file)


def run_module(name: str, arguments: Sequence[str]) -> int:
    """Run a module, or the `__main__` of a package, as `python -m name arguments...` would.

    Args:
        name: name of the module.
        arguments: arguments of the program.

    Returns:
        The exit status, which the caller must raise as SystemExit. After an uncaught KeyboardInterrupt, the process
        then exits by SIGINT.

    Raises:
        SystemExit: the program raised it, or there is no such module.
    """
    if not sys.flags.safe_path:
        try:
            sys.path.insert(0, os.getcwd())
        except OSError:
            # The directory was deleted: `python` also omits the entry.
            pass
    _become_main(["-m", *arguments])
    return _run_module(name, is_named=True)


def _absolute(path: str) -> str:
    """Return the path of a script as `__file__` has it: absolute, but not normalized."""
    if os.path.isabs(path):
        return path
    try:
        directory = os.getcwd()
    except OSError:
        return path
    return directory if path in ("", ".") else f"{directory}/{path}"


def _become_main(argv: list[str]) -> None:
    """Set `sys.argv`, and create the `__main__` module that a program finds at its first line."""
    main = ModuleType("__main__")
    own = vars(main)
    own["__loader__"] = importlib.machinery.BuiltinImporter
    if compat.MAIN_HAS_ANNOTATIONS:
        own["__annotations__"] = {}
    own["__builtins__"] = builtins
    sys.modules["__main__"] = main
    # The second name that `multiprocessing` gives the main module, for objects from processes that it has spawned.
    if "__mp_main__" in sys.modules:
        sys.modules["__mp_main__"] = main
    # The list stays the same, because imported modules may hold it.
    sys.argv[:] = argv


def _run_file(file: str) -> int:
    try:
        fd = os.open(file, os.O_RDONLY)
    except OSError as error:
        print(f"{sys.orig_argv[0]}: can't open file {file!r}: [Errno {error.errno}] {error.strerror}", file=sys.stderr)
        return 2
    to_stream = ctypes.pythonapi.fdopen
    to_stream.argtypes, to_stream.restype = (ctypes.c_int, ctypes.c_char_p), ctypes.c_void_p
    run = ctypes.pythonapi.PyRun_SimpleFileExFlags
    run.argtypes = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p
    # PyRun_SimpleFileExFlags prints an exception that the program does not catch; on SystemExit, it exits the process.
    return int(run(to_stream(fd, b"rb"), os.fsencode(file), True, None) != 0)


def _run_module(name: str, is_named: bool) -> int:
    try:
        runpy._run_module_as_main(name, is_named)  # type: ignore[attr-defined]
    except BaseException as error:
        if isinstance(error, SystemExit) and not sys.flags.inspect:
            raise
        uncaught = _without_first_frame(error)
    else:
        return 0
    # Outside of the `except` block, so that `sys.excepthook` sees no exception being handled.
    _print(uncaught)
    if isinstance(uncaught, KeyboardInterrupt):
        _exit_by_interrupt()
    return 1


def _without_first_frame(error: BaseException) -> BaseException:
    return error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)


def _print(error: BaseException) -> None:
    """Report an uncaught exception as the interpreter does."""
    compat.set_last_exception(error)
    try:
        sys.excepthook(type(error), error, error.__traceback__)
        return
    except SystemExit:
        raise
    except BaseException as raised:
        of_hook = _without_first_frame(raised)
    print("Error in sys.excepthook:", file=sys.stderr)
    sys.__excepthook__(type(of_hook), of_hook, of_hook.__traceback__)
    print("\nOriginal exception was:", file=sys.stderr)
    sys.__excepthook__(type(error), error, error.__traceback__)


def _exit_by_interrupt() -> None:
    """Make the interpreter exit by SIGINT after all other exit work, as after an uncaught KeyboardInterrupt."""
    shown, sys.excepthook = sys.excepthook, lambda *_: None
    last = {name: value for name, value in vars(sys).items() if name.startswith("last_")}
    ctypes.pythonapi.PyRun_SimpleString(b"raise KeyboardInterrupt")
    sys.excepthook = shown
    vars(sys).update(last)
