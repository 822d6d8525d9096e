"""jitserver: the daemon that keeps JAX functions compiled between runs of a program, and its command line."""

from typing import TYPE_CHECKING, Any

from jitclient.version import __version__ as __version__

__all__ = ["RunningDaemon", "run_daemon"]


def load_ipython_extension(shell: Any) -> None:
    """Do what `%load_ext jitserver` is for: the jits of the cells run on the daemon, and there is a magic."""
    from jitserver.notebooks import extension

    extension.load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Undo it."""
    from jitserver.notebooks import extension

    extension.unload(shell)


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
