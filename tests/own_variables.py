"""A check that a test leaves the daemon of later tests alone: variables, settings and connections that lead to it."""

import contextlib
import os
from collections.abc import Iterator

_PREFIXES = ("HOME", "JAX_", "JITSERVER_", "XDG_", "XLA_")


@contextlib.contextmanager
def own_variables() -> Iterator[None]:
    """Restores the variables, what was made of them, and the session, and fails if any leads to another daemon."""
    # Not above: the conftest that uses this sets the variables first.
    from jitclient.core.settings import settings
    from jitclient.session import process

    before, session = _variables(), process.current
    yield
    after = _variables()
    changed = sorted({name for name, _ in before.items() ^ after.items()})
    for name in changed:
        os.environ.pop(name, None)
    os.environ.update((name, before[name]) for name in changed if name in before)
    is_stale = settings.cache_info().currsize and settings().address != (before.get("JITSERVER_ADDRESS") or None)
    if is_stale:
        settings.cache_clear()
    connected = process.current if process.current is not session else None
    if connected is not None and connected.settings.address != settings().address:
        process.current = session
    else:
        connected = None
    assert not changed, f"the test left other values of these variables behind: {changed}"
    assert not is_stale, "the test left settings of another address behind"
    assert connected is None, f"the test left this process connected to {connected.settings.address}"


def _variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(_PREFIXES)}
