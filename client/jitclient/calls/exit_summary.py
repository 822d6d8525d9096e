"""End of a program: its figures are recorded for `jitserver stats`, and one line says what was saved.

A program that ends without its exit handlers (`os._exit`, a signal that kills) records and says nothing. Nor does a
forked child, whose figures are its own and not its parent's. A process that a program started as its worker records
its figures, and says nothing.
"""

import atexit
import contextlib
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from jitclient.calls.usage import FOUND, usage
from jitclient.core import notices
from jitclient.core.clock import time
from jitclient.core.settings import settings
from jitclient.jaxside.compile_events import compile_events, listen

if TYPE_CHECKING:
    from jitclient.core.program_stats import ProgramStats

_MIN_SECONDS = 1.0
"""Minimum seconds saved that are worth a line."""

_pid: int | None = None
"""Process whose figures are summarized at its exit; None before there is one."""


def begin_program(name: str, is_module: bool, report: Callable[[], None] | None) -> None:
    """Summarize the program that this process is about to run; exit handlers that it registers run before.

    Args:
        name: path of a script, or name of a module.
        is_module: whether `name` is a module.
        report: prints a report in place of the line, if given.
    """
    _begin(f"-m {name}" if is_module else absolute(name), "--report", report)


def begin() -> None:
    """Summarize this process, unless that has begun, or it was forked from one where that has begun."""
    if _pid is None:
        _begin(script(), "jitserver run --report", None)


def begin_reported(report: Callable[[str], Callable[[], None]]) -> None:
    """Summarize this process by a report, unless its summary has begun.

    A process that `multiprocessing` started has none, which could replace that of its parent.

    Args:
        report: takes the name of the program, and returns a function that prints or writes the report.
    """
    if _pid is None:
        name = script()
        make = report(name)
        # Asked at the exit: a child does not know of its parent yet when it imports the parent's `__main__`.
        _begin(name, "JITSERVER_REPORT", lambda: None if _is_child() else make())


def _begin(name: str, details: str, report: Callable[[], None] | None) -> None:
    global _pid
    _pid = os.getpid()
    # A failure here does not matter to the user of the program.
    with contextlib.suppress(Exception):
        listen()
    atexit.register(_at_exit, name, details, report)


def stats(name: str) -> "ProgramStats":
    """Return the figures of this process until now.

    Args:
        name: the program's name.
    """
    from jitclient.core.program_stats import ProgramStats

    found, saved = usage.total(*FOUND)
    made, remade = usage.total("made"), usage.total("remade")
    counted = compile_events
    return ProgramStats(
        time(),
        name,
        saved + counted.saved_seconds,
        found,
        *made,
        *remade,
        counted.found,
        counted.compiled,
        counted.compiled_seconds,
    )


def line(of: "ProgramStats", details: str, by_jax: float = 0.0) -> str:
    """Return the line that says what a program saved, and how much of that JAX's own cache would save."""
    from jitclient.wire import labels  # loads msgspec

    found = [(of.found, "program"), (of.compilations_found, "compilation")]
    what = ", ".join(f"{count:,} {noun}{'' if count == 1 else 's'} found" for count, noun in found if count)
    return f"{labels.seconds(of.saved)} saved ({what}){labels.saved_by_jax(of.saved, by_jax)}; details: {details}"


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


def script() -> str:
    """Return the name of the program that this process runs: its path, its module, or how it was typed.

    At the exit, Python has already deleted the path.
    """
    found = getattr(sys.modules.get("__main__"), "__dict__", {})
    name, file = getattr(found.get("__spec__"), "name", None), found.get("__file__")
    # A directory or zip file has the name `__main__`.
    if isinstance(name, str) and name != "__main__":
        return f"-m {name.removesuffix('.__main__')}"
    if isinstance(file, str):
        return absolute(file)
    if "ipykernel" in sys.modules:
        return _notebook()
    return "python -c" if sys.argv[:1] == ["-c"] else "python"


def _notebook() -> str:
    """Return the path of the notebook for which this process runs, which Jupyter's server sets in a variable."""
    return os.environ.get("JPY_SESSION_NAME") or "notebook"


def absolute(path: str) -> str:
    """Return the absolute path, or the path as it is without a working directory."""
    # The working directory may be deleted.
    with contextlib.suppress(OSError):
        return os.path.abspath(path)
    return path


def _at_exit(name: str, details: str, report: Callable[[], None] | None) -> None:
    global _pid
    # Two threads that began at the same time registered this twice.
    if _pid != os.getpid():
        return
    _pid = None
    # A failure here does not matter to the user of the program.
    with contextlib.suppress(Exception):
        if report is not None:
            report()
        # Import as little as possible now: running code from a string hides an uncaught KeyboardInterrupt from Python.
        if report is None and _is_shown() and (remade := line_of_remade()):
            notices.print_notice(remade)
        if not usage.got and not compile_events.found:
            return
        ended = stats(name)
        if report is None and ended.saved >= _MIN_SECONDS and _is_shown():
            notices.print_notice(line(ended, details, usage.saved_compiling + compile_events.saved_seconds))
        if settings().stats:
            from jitclient.core import program_stats

            program_stats.append(ended)


def _is_shown() -> bool:
    # Workers of other libraries, such as pytest-xdist, share stderr with the user's program, but not stdin.
    is_interactive = notices.is_terminal() and os.isatty(0)
    return is_interactive and not _is_child() and not settings().quiet


def _is_child() -> bool:
    """Return whether `multiprocessing` started this process."""
    processes = sys.modules.get("multiprocessing.process")
    return processes is not None and processes.parent_process() is not None


def _after_fork() -> None:
    usage.clear()
    compile_events.clear()


os.register_at_fork(after_in_child=_after_fork)
