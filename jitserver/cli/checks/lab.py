"""Check of the lab's cache: its settings, and whether the daemon uses it."""

from collections.abc import Iterator

from jitclient.errors import SettingsError
from jitserver.cli.checks.finding import DaemonState, Finding, verdict
from jitserver.cli.status import of_share
from jitserver.store.share.objects import Objects
from jitserver.store.share.options import LabOptions

_NAME = "lab's cache"


def lab(state: DaemonState) -> Iterator[Finding]:
    """Check the settings of the lab's cache, if one is set, and that the daemon uses it without rejecting entries."""
    try:
        options = LabOptions.from_environment()
        if options is None:
            return
        Objects(options.url)
    except SettingsError as error:
        yield Finding(_NAME, "problem", str(error), "correct it, then run `jitserver restart`")
        return
    used = None if state.status is None else state.status.share
    if state.status is None:
        yield Finding(_NAME, "ok", f"{options.url}, used by the next daemon")
    elif used is None or used.url != options.url:
        says = f"the daemon does not use {options.url}, because it was started with other settings"
        yield Finding(_NAME, "warning", says, "jitserver restart")
    elif used.why_off:
        yield Finding(_NAME, "warning", f"{options.url} is not used now: {used.why_off}", "check the storage")
    else:
        do = "`jitserver share verify` names the entries that no member has written"
        yield verdict(_NAME, not used.rejected, f"{options.url}: {of_share(used)}", do)
