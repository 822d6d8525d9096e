"""The list of all checks, ordered so that a cause comes before its effects."""

from collections.abc import Callable, Iterable, Iterator

from jitclient.errors import JitserverError
from jitserver.cli.checks import daemon, environment, lab, machine
from jitserver.cli.checks.finding import DaemonState, Finding

Check = Callable[[DaemonState], Finding | Iterable[Finding]]

CHECKS: tuple[Check, ...] = (
    environment.command,
    environment.versions,
    environment.plugins,
    environment.settings,
    machine.disk,
    machine.file_system,
    machine.shared_memory,
    machine.control_group,
    machine.memory_maps,
    machine.run_helpers,
    daemon.answers,
    environment.settings_of_daemon,
    lab.lab,
    daemon.devices,
    daemon.device_memory,
    daemon.executables,
    daemon.call,
)

REMOTE_CHECKS: tuple[Check, ...] = (
    environment.versions,
    environment.settings,
    daemon.answers,
    daemon.call,
    daemon.remote,
)
"""The checks for a daemon on another machine."""


def findings_of(state: DaemonState, checks: Iterable[Check] = CHECKS) -> Iterator[Finding]:
    """Run the checks in turn, and yield their findings. A check that fails to run is also a finding."""
    for check in checks:
        name = check.__name__.replace("_", " ")
        try:
            found = check(state)
            yield from [found] if isinstance(found, Finding) else found
        except JitserverError as error:
            yield Finding(name, "problem", str(error), "see above")
        except (OSError, KeyError, ValueError) as error:  # other systems have other files
            yield Finding(name, "warning", f"cannot be checked: {error}", "nothing, if this is not Linux")
