"""The command `jitserver doctor`."""

import dataclasses
import sys
import time

import click

from jitclient.errors import DaemonUnavailable, JitserverError, SettingsError, WrongUser
from jitclient.session.launch import IDLE_EXIT_SECONDS
from jitclient.wire.address import Address
from jitclient.wire.introspection import Status
from jitclient.wire.messages import Verb
from jitserver.cli.checks.finding import DaemonState, Finding
from jitserver.cli.common import NOT_RUNNING, ask, json_option, print_table, report, selected_address
from jitserver.cli.lifecycle import launched

_FAILED = 1


@click.command()
@click.option("--start", is_flag=True, help="Start a daemon if none is running, as a client would.")
@json_option
def doctor(start: bool) -> None:
    """Check the environment and the daemon.

    Checks versions, settings, free disk space, limits and devices, and says how to fix each problem. If a daemon is
    running, also makes a real call from a fresh process, which must not run it locally.

    Exit status: 0 no problems, perhaps warnings; 1 problems; 3 no problems, but no daemon is running.
    """
    # Imported here, because the checks import many modules.
    from jitserver.cli.checks.checks import CHECKS, REMOTE_CHECKS, findings_of

    try:
        state = _daemon_state(start)
        findings = list(findings_of(state, CHECKS if isinstance(state.address, Address) else REMOTE_CHECKS))
        runs = state.status is not None
    except (SettingsError, OSError) as error:  # there is no usable address
        runs, findings = False, [Finding("settings", "problem", str(error), "correct it, then run doctor again")]
    report(
        {"running": runs, "checks": [dataclasses.asdict(found) for found in findings]},
        lambda: print_table(["", "check", "found"], [_row(found) for found in findings]),
    )
    if any(found.level == "problem" for found in findings):
        sys.exit(_FAILED)
    if not runs:
        sys.exit(NOT_RUNNING)


def _daemon_state(start: bool) -> DaemonState:
    address, begun = selected_address(), time.monotonic()
    try:
        if start:
            launched(address, IDLE_EXIT_SECONDS)
            begun = time.monotonic()
        status: Status = ask(Verb.STATUS, None, Status)
    except SettingsError:
        raise
    except WrongUser as error:
        reason, _, remedy = str(error).rpartition(". ")
        return DaemonState(address, reason=reason, is_broken=True, remedy=remedy)
    except (JitserverError, click.ClickException) as error:
        return DaemonState(address, reason=str(error), is_broken=start or not isinstance(error, DaemonUnavailable))
    answers = Address.parse(status.address) if isinstance(address, Address) else address
    return DaemonState(answers, status, time.monotonic() - begun)


def _row(found: Finding) -> list[str]:
    return [found.level, found.check, f"{found.says}\n-> {found.do}" if found.do else found.says]
