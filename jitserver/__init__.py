"""jitserver: the daemon that keeps JAX functions compiled between runs of a program, and its command line."""

from typing import TYPE_CHECKING, Any

from jitclient.version import __version__ as __version__

__all__ = ["RunningDaemon", "run_daemon"]

if TYPE_CHECKING:
    from jitserver.daemon.embedded import RunningDaemon as RunningDaemon
    from jitserver.daemon.embedded import run_daemon as run_daemon
else:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        # Imported at first use: the CLI commands do not need this module.
        from jitserver.daemon import embedded

        return getattr(embedded, name)
