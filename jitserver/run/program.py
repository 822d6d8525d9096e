"""Program of a run, in the run's own process."""

import ctypes
import signal
import sys

from jitserver.run import compilations, history, record
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
    from jitclient.api import kernels, program_end, run_as_main

    history.note_at_exit()
    if command.record:
        record.begin(command.record, command.packages, preloaded, why_fresh)
    program_end.begin(command.name, command.is_module, command.report, command.packages, preloaded, why_fresh)
    if command.jit:
        from jitclient.api.switch import install

        install(command.packages)
        kernels.run_under_jitclient(command.packages)
        compilations.keep()
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
