"""Start of the daemon while the program still sets itself up, so that its first call waits less."""

import contextlib
import functools
import sys

from jitclient.capture.user_code.installed import package_of
from jitclient.core.settings import settings
from jitclient.jaxside.compile_events import when_started
from jitclient.session import process


@functools.cache
def start_with_jax() -> None:
    """Start the daemon once this process's jax works, unless a daemon listens already, with the program's packages.

    Earlier, the program may still choose another daemon: by a setting of jax's for the whole process.
    """
    if not process.inside_daemon:
        when_started(_start)


def _start() -> None:
    # A session has found its daemon, or was told another address. A failure is reported by the first call.
    if process.current is None:
        with contextlib.suppress(Exception):
            from jitclient.session import handshake  # loads msgspec

            handshake.start_ahead(settings(), _imported_packages())


def _imported_packages() -> set[str]:
    """Return the installed packages that the program has imported so far."""
    names = {name.partition(".")[0] for name in list(sys.modules)} - sys.stdlib_module_names
    return {name for name in names if package_of(name) is not None}
