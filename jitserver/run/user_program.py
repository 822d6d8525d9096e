"""Program of a run, in the run's own process."""

import contextlib
import ctypes
import mmap
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from jitclient.core.settings import settings
from jitclient.jaxside import interop
from jitclient.wire.address import remote
from jitserver.run import history
from jitserver.run.request import Command


def run(command: Command, interpreter: str, preloaded: tuple[int, float] | None = None, why_fresh: str = "") -> None:
    """Run the program, then exit. Returns only for a prompt (`python -i`).

    `sys.path` must not have an entry for the program yet.

    Args:
        command: the program and the options.
        interpreter: the word that started Python.
        preloaded: how many modules a helper has imported, and the seconds that this took; None without a helper.
        why_fresh: why this is a fresh process; empty with a helper.

    Raises:
        SystemExit: the process must exit.
    """
    from jitclient.api import program_end, run_as_main
    from jitclient.core.events import Started

    history.note_at_exit()
    if command.files:
        # The command that would read the notes may have ended.
        with contextlib.suppress(OSError, ValueError), open(command.files, "r+b") as file:
            sys.addaudithook(_noting(mmap.mmap(file.fileno(), 0)))
    named = f"-m {command.name}" if command.is_module else command.name
    program_end.begin(Started(named, command.packages, preloaded, why_fresh), command.report)
    if command.jit:
        from jitclient.api.switch import install

        install(command.packages)
        # Helpers prepare the operations that runs have traced and lowered; the cache has the compiled ones.
        if remote(settings().address) is None:
            interop.when_loaded(_reuse_operations)
    option = ["-m"] if command.is_module else []
    sys.orig_argv = [interpreter, *option, command.name, *command.arguments]
    start = run_as_main.run_module if command.is_module else run_as_main.run_script
    status = start(command.name, command.arguments)
    if status and getattr(sys, "last_type", None) is KeyboardInterrupt:
        status = _interrupted()
    if not sys.flags.inspect:
        sys.exit(status)


def _interrupted() -> int:
    """Make the process exit by SIGINT after all other exit work, as the interpreter does; return the exit status."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "on_exit"):
        return 1
    # The C library calls `raise` with the exit status, which is the number of the signal.
    libc.on_exit(ctypes.cast(libc["raise"], ctypes.c_void_p), None)
    return signal.SIGINT.value


def _noting(memory: mmap.mmap) -> Callable[[str, tuple[Any, ...]], None]:
    """Return the audit hook that notes executed files, with the times of their last changes, in the memory of a file.

    The notes are no write, which `fresh_start.py` would count as an effect of the program. The hook uses no globals: at
    the interpreter's exit, modules are emptied before the last events.
    """
    getpid, absolute, stat, encode = os.getpid, os.path.abspath, os.stat, os.fsencode
    libraries = (os.path.dirname(os.__file__) + os.sep, f"{os.sep}site-packages{os.sep}")
    pid, known = getpid(), set[str]()
    # A run that starts again in a fresh process has made notes before.
    memory.seek(len(memory[:].rstrip(b"\0")) + 1 if memory[0] else 0)

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        # A file that is no valid Python is compiled only.
        if event not in ("compile", "exec"):
            return
        name = arguments[1] if event == "compile" else getattr(arguments[0], "co_filename", None)
        if not isinstance(name, str) or name in known or name.startswith("<") or getpid() != pid:
            return
        known.add(name)
        # An error here would fail the program's import.
        try:
            if not any(part in name for part in libraries):
                memory.write(encode(f"{stat(name).st_mtime_ns} {absolute(name)}\0"))
        except Exception:
            return

    return note


def _reuse_operations() -> None:
    from jitclient.jaxside.operations import reuse

    reuse.use()
