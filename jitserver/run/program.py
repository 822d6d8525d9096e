"""The program of a run, in the process that is its own."""

import atexit
import ctypes
import os
import signal
import sys

from jitserver.run import compilations, history
from jitserver.run.request import Command


def run(command: Command, interpreter: str) -> None:
    """Run it, with `sys.path` as it is without an entry for it; then end. Returns for a prompt only (`python -i`).

    Raises:
        SystemExit: otherwise.
    """
    from jitclient.api import as_main

    history.note_at_the_end()
    if command.report:
        from jitclient.api import report
        from jitclient.calls.usage import usage

        atexit.register(report.print_report, usage, os.getpid())
    if command.jit:
        from jitclient.api.switch import install

        install(command.packages)
        compilations.keep()
    option = ["-m"] if command.is_module else []
    sys.orig_argv = [interpreter, *option, command.name, *command.arguments]
    start = as_main.run_module if command.is_module else as_main.run_script
    status = start(command.name, command.arguments)
    if status and getattr(sys, "last_type", None) is KeyboardInterrupt:
        status = _interrupted()
    if not sys.flags.inspect:
        sys.exit(status)


def _interrupted() -> int:
    """Have the process end by SIGINT after all else, as the interpreter does; return the status with which to exit."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "on_exit"):
        return 1
    libc.on_exit(ctypes.cast(libc["raise"], ctypes.c_void_p), None)  # it is called with the status
    return signal.SIGINT.value
