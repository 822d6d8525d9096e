"""jitserver: the daemon that keeps JAX functions compiled between runs of a program, and its command line."""

from typing import Any

from jitclient.version import __version__ as __version__


def load_ipython_extension(shell: Any) -> None:
    """Do what `%load_ext jitserver` is for: the jits of the cells run on the daemon, and there is a magic."""
    from jitserver import notebooks

    notebooks.load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Undo it."""
    from jitserver import notebooks

    notebooks.unload(shell)
