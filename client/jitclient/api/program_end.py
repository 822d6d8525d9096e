"""End of a program that uses jitclient: a report if the user asked for one, or else the line of `exit_summary`."""

import functools
import os
from collections.abc import Callable

from jitclient.calls import exit_summary
from jitclient.core import events, import_times
from jitclient.core.events import Started
from jitclient.core.settings import is_report_at_exit, is_report_file, report, settings, use_report

_VARIABLE = "JITSERVER_REPORT"


def begin_by_environment() -> None:
    """Prepare for the end of a program that runs under plain `python`, if JITSERVER_REPORT asks for a report then.

    Raises:
        SettingsError: the value of JITSERVER_REPORT, or of another variable, is invalid.
    """
    form = settings().report if os.environ.get(_VARIABLE) else ""
    if is_report_at_exit(form):
        exit_summary.begin_reported(lambda: _report(form))


def begin(started: Started, form: str) -> None:
    """Prepare for the end of a program that is about to run; without a `form` of its report, JITSERVER_REPORT decides.

    Raises:
        SettingsError: the value of JITSERVER_REPORT, or of another variable, is invalid.
    """
    use_report(form)
    events.log.start(started)
    if not (form or os.environ.get(_VARIABLE)) or not is_report_at_exit(form := report()):
        exit_summary.begin(None, "--report")
    else:
        exit_summary.begin(_report(form), "--report")


def _report(form: str) -> Callable[[], None]:
    """Return the function that makes the report, and keep all events from now on if the report is written to a file."""
    if not is_report_file(form):
        from jitclient.api.report import print_report  # loads msgspec

        return functools.partial(print_report, form)
    # Loaded now: at the exit, the program may have changed where modules are found.
    from jitclient.api.report_file import write_report

    events.log.ask()
    import_times.observe()
    # The program may change the working directory.
    return functools.partial(write_report, exit_summary.absolute(form))
