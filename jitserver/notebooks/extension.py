"""Loading and unloading of the extension: `%load_ext jitserver`, `%unload_ext jitserver`."""

from typing import Any

from IPython.core.interactiveshell import InteractiveShell

from jitclient.api.switch import Installed, install
from jitclient.core import progress
from jitserver.notebooks.magics import JitserverMagics
from jitserver.notebooks.progress_display import ProgressDisplay

_installed: list[Installed] = []


def load(shell: InteractiveShell) -> None:
    """Have `jax.jit` in the cells run on the daemon, and add the magic."""
    _installed.append(install())
    shell.register_magics(JitserverMagics)
    if _has_cells(shell):
        progress.display_with(ProgressDisplay)


def unload(shell: InteractiveShell) -> None:
    """Undo that, but no other `install`. Functions that were jitted in between still run on the daemon."""
    while _installed:
        _installed.pop().__exit__()
    progress.display_with(None)
    for kind, names in JitserverMagics.magics.items():
        for name in names:
            shell.magics_manager.magics[kind].pop(name, None)


def _has_cells(shell: Any) -> bool:
    """Return whether the shell shows rich output below its cells, as kernels of Jupyter do, and no terminal."""
    return hasattr(shell, "kernel")
