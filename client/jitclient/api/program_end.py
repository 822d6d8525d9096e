"""End of a program that jitclient runs: a report if the user asked for one, or else the line of `exit_summary`."""

import functools
from collections.abc import Sequence

from jitclient.calls import exit_summary


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
        form: "text" or "json" for a report; empty for none.
        packages: the installed packages whose jits run on the daemon.
        preloaded: how many modules a helper has imported, and the seconds that this took; None without a helper.
        why_fresh: why a run has no helper; empty if it has one, or is not `jitserver run`.
    """
    report = None
    if form:
        from jitclient.api.report import print_report  # loads msgspec

        report = functools.partial(print_report, form, packages, preloaded, why_fresh)
    exit_summary.begin_program(name, is_module, report)
