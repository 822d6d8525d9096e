"""End of a program that uses jitclient: a report if the user asked for one, or else the line of `exit_summary`."""

import functools
import os
from collections.abc import Callable, Sequence

from jitclient.calls import exit_summary
from jitclient.core import events, import_times
from jitclient.core.settings import is_report_at_exit, is_report_file, report, settings, use_report

_VARIABLE = "JITSERVER_REPORT"


def begin_by_environment() -> None:
    """Prepare for the end of a program that runs under plain `python`, if JITSERVER_REPORT asks for a report then.

    Raises:
        SettingsError: the value of JITSERVER_REPORT, or of another variable, is invalid.
    """
    form = settings().report if os.environ.get(_VARIABLE) else ""
    if is_report_at_exit(form):
        exit_summary.begin_reported(lambda name: _report(form, name, (), None, ""))


def begin(
    name: str,
    is_module: bool,
    form: str,
    packages: Sequence[str],
    preloaded: tuple[int, float] | None = None,
    why_fresh: str = "",
) -> None:
    """Prepare for the end of the program that this process is about to run.

    Args:
        name: path of a script, or name of a module.
        is_module: whether `name` is a module.
        form: form of the report; if empty, JITSERVER_REPORT decides.
        packages: the installed packages whose jits run on the daemon.
        preloaded: how many modules a helper has imported, and the seconds that this took; None without a helper.
        why_fresh: why a run has no helper; empty if it has one, or is not `jitserver run`.

    Raises:
        SettingsError: the value of JITSERVER_REPORT, or of another variable, is invalid.
    """
    use_report(form)
    if not (form or os.environ.get(_VARIABLE)) or not is_report_at_exit(form := report()):
        exit_summary.begin(None, "--report")
        return
    named = f"-m {name}" if is_module else name
    exit_summary.begin(_report(form, named, packages, preloaded, why_fresh), "--report")


def _report(
    form: str, name: str, packages: Sequence[str], preloaded: tuple[int, float] | None, why_fresh: str
) -> Callable[[], None]:
    """Return the function that makes the report, and keep all events from now on if the report is written to a file."""
    if not is_report_file(form):
        from jitclient.api.report import print_report  # loads msgspec

        return functools.partial(print_report, form, packages, preloaded, why_fresh)
    # Loaded now: at the exit, the program may have changed where modules are found.
    from jitclient.api.report_file import write_report

    events.log.ask()
    import_times.observe()
    # The program may change the working directory.
    return functools.partial(write_report, exit_summary.absolute(form), name, packages, preloaded, why_fresh)
