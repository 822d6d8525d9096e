"""A check that a test leaves the variables of this process, and so the daemon that later tests find, as they were."""

import contextlib
import os
from collections.abc import Iterator

_PREFIXES = ("HOME", "JAX_", "JITSERVER_", "XDG_", "XLA_")


@contextlib.contextmanager
def own_variables() -> Iterator[None]:
    """Restores the variables and the settings that were made of them, and fails if any had changed."""
    # Not above: the conftest that uses this sets the variables first.
    from jitclient.core.settings import settings

    before = _variables()
    yield
    after = _variables()
    changed = sorted({name for name, _ in before.items() ^ after.items()})
    for name in changed:
        os.environ.pop(name, None)
    os.environ.update((name, before[name]) for name in changed if name in before)
    is_stale = settings.cache_info().currsize and settings().address != (before.get("JITSERVER_ADDRESS") or None)
    if is_stale:
        settings.cache_clear()
    assert not changed, f"the test left other values of these variables behind: {changed}"
    assert not is_stale, "the test left settings of another address behind"


def _variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(_PREFIXES)}
