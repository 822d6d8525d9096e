"""End of a program: one line says what was saved, or a report that the user asked for.

A program that ends without its exit handlers (`os._exit`, a signal that kills) says nothing. Nor does a forked child,
nor a process that a program started as its worker.
"""

import atexit
import contextlib
import os
import sys
from collections.abc import Callable

from jitclient.core import events, notices
from jitclient.core.settings import report as form_of_report
from jitclient.jaxside.compile_events import listen

_MIN_SECONDS = 1.0
"""Minimum seconds saved that are worth a line."""

_pid: int | None = None
"""Process that is summarized at its exit; None before there is one."""


def begin(report: Callable[[], None] | None = None, details: str = "jitserver run --report") -> None:
    """Summarize this process at its exit, unless that has begun, or it was forked from one where that has begun.

    Exit handlers that the program registers from now on run before.

    Args:
        report: prints a report in place of the line, if given.
        details: how to ask for the details.
    """
    global _pid
    if _pid is not None:
        return
    _pid = os.getpid()
    # A failure here does not matter to the user of the program.
    with contextlib.suppress(Exception):
        listen()
    atexit.register(_at_exit, details, report)


def begin_reported(report: Callable[[], Callable[[], None]]) -> None:
    """Summarize this process by a report, unless its summary has begun; `report` returns what prints or writes it.

    A process that `multiprocessing` started has none, which could replace that of its parent.
    """
    if _pid is None:
        events.log.start(events.Started(_script()))
        make = report()
        # Asked at the exit: a child does not know of its parent yet when it imports the parent's `__main__`.
        begin(lambda: None if _is_child() else make())


def line(saved: float, programs: int, compilations: int, details: str, by_jax: float = 0.0) -> str:
    """Return the line that says what a program saved, and how much of that JAX's own cache would save.

    Args:
        saved: the seconds that found programs and compilations took when they were made, without those of finding them.
        programs: how many programs were found.
        compilations: how many of its own compilations jax found.
        details: how to ask for the details.
        by_jax: the seconds that JAX's own cache would save.
    """
    from jitclient.wire import labels  # loads msgspec

    found = [(programs, "program"), (compilations, "compilation")]
    what = ", ".join(f"{count:,} {noun}{'' if count == 1 else 's'} found" for count, noun in found if count)
    return f"{labels.seconds(saved)} saved ({what}){labels.saved_by_jax(saved, by_jax)}; details: {details}"


def line_of_remade() -> str:
    """Return the line about what each run compiles again; empty if that takes little time."""
    # Without this module there is no cache, and nothing is known.
    if "jitclient.jaxside.compilation_cache" not in sys.modules:
        return ""
    from jitclient.jaxside.compilation_cache import made_in_each_run
    from jitclient.wire import labels

    remade = made_in_each_run()
    took, number = sum(seconds for *_, seconds in remade), sum(times for _, times, _ in remade)
    if took < _MIN_SECONDS:
        return ""
    function, where, _ = remade[0][0]
    most, noun = "most for " if len(remade) > 1 else "", "compilation" if number == 1 else "compilations"
    what = f"{number:,} {noun} that each run makes again, {most}{function}{f' at {where}' if where else ''}"
    return f"{labels.seconds(took)} for {what}: {remade[0][0].reason}"


def _script() -> str:
    """Return the name of the program that this process runs: its path, its module, or how it was typed."""
    found = getattr(sys.modules.get("__main__"), "__dict__", {})
    name, file = getattr(found.get("__spec__"), "name", None), found.get("__file__")
    # A directory or zip file has the name `__main__`.
    if isinstance(name, str) and name != "__main__":
        return f"-m {name.removesuffix('.__main__')}"
    if isinstance(file, str):
        return absolute(file)
    return "python -c" if sys.argv[:1] == ["-c"] else "python"


def absolute(path: str) -> str:
    """Return the absolute path, or the path as it is without a working directory."""
    # The working directory may be deleted.
    with contextlib.suppress(OSError):
        return os.path.abspath(path)
    return path


def _at_exit(details: str, report: Callable[[], None] | None) -> None:
    global _pid
    # Two threads that began at the same time registered this twice.
    if _pid != os.getpid():
        return
    _pid = None
    # A failure here does not matter to the user of the program.
    with contextlib.suppress(Exception):
        if report is not None:
            report()
        if report is not None or not is_shown():
            return
        # Import as little as possible now: running code from a string hides an uncaught KeyboardInterrupt from Python.
        if remade := line_of_remade():
            notices.print_notice(remade)
        (programs, seconds), (found, by_jax) = events.log.total("found"), events.log.total("found by jax")
        if seconds + by_jax >= _MIN_SECONDS:
            _, compiling = events.log.total("saved by jax")
            notices.print_notice(line(seconds + by_jax, programs, found, details, compiling + by_jax))


def is_shown() -> bool:
    """Return whether the user sees lines about this process: it is no worker, and its terminal is the user's."""
    # Workers of other libraries, such as pytest-xdist, share stderr with the user's program, but not stdin.
    is_interactive = notices.is_terminal() and os.isatty(0)
    return is_interactive and not _is_child() and form_of_report() != "off"


def _is_child() -> bool:
    """Return whether `multiprocessing` started this process."""
    processes = sys.modules.get("multiprocessing.process")
    return processes is not None and processes.parent_process() is not None
