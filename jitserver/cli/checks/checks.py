"""The list of all checks, ordered so that a cause comes before its effects.

Each helps to answer a question: why does nothing start, why is nothing warm, why is it slow?
"""

from collections.abc import Callable, Iterable, Iterator

from jitclient.errors import JitserverError
from jitserver.cli.checks import cache, daemon, environment, lab
from jitserver.cli.checks.finding import DaemonState, Finding

Check = Callable[[DaemonState], Finding | Iterable[Finding]]

CHECKS: tuple[Check, ...] = (
    environment.versions,
    environment.settings,
    cache.cache,
    cache.imports,
    daemon.answers,
    lab.lab,
    daemon.devices,
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
