"""Extension of IPython: `%load_ext jitserver` has the jits of a notebook's cells run on the daemon.

The magic `%jitserver` shows what they use. While the daemon compiles for a cell, a line below it says so.
"""

import html
import shlex
import threading
import time
from typing import Any

import msgspec
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_magic, magics_class
from IPython.display import HTML, DisplayHandle, display

from jitclient.api import keeping
from jitclient.api.report import lines, report_now
from jitclient.api.switch import Installed, install
from jitclient.core import progress
from jitclient.core.settings import settings
from jitclient.core.threads import Thread
from jitclient.errors import JitserverError
from jitclient.session.handshake import ask
from jitclient.wire import labels
from jitclient.wire.introspection import Status
from jitclient.wire.messages import Verb

_USAGE = "Use %jitserver, %jitserver keep NAME ... or %jitserver kept NAME ..."
_PERIOD_SECONDS = 1.0

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


@magics_class
class JitserverMagics(Magics):
    """Magics for the cells of a notebook."""

    @line_magic
    def jitserver(self, line: str) -> None:
        """Show the daemon and what this notebook used of it; or keep variables on the daemon, or get them back.

        %jitserver               the daemon, and the programs that this notebook used
        %jitserver keep x y      keep variables under their names, beyond a restart of the kernel
        %jitserver kept x y      set variables to what is kept under their names
        """
        try:
            command, *names = shlex.split(line) or [""]
        except ValueError as error:
            raise UsageError(f"{error}. {_USAGE}") from None
        if not command and not names:
            self._show()
        elif command == "keep" and names:
            for name in names:
                self._variables[name] = keeping.keep(name, self._variable(name))
        elif command == "kept" and names:
            for name in names:
                self._variables[name] = self._kept(name)
        else:
            raise UsageError(_USAGE)

    @property
    def _variables(self) -> dict[str, Any]:
        assert self.shell is not None  # IPython makes this object for a shell
        variables: dict[str, Any] = self.shell.user_ns
        return variables

    def _variable(self, name: str) -> Any:
        if name not in self._variables:
            raise UsageError(f"there is no variable {name!r}")
        return self._variables[name]

    def _kept(self, name: str) -> Any:
        try:
            return keeping.kept(name)
        except KeyError:
            raise UsageError(f"nothing is kept under {name!r}; `jitserver arrays ls` lists the names") from None

    def _show(self) -> None:
        try:
            found: Status = ask(settings(), Verb.STATUS, None, Status)
            held = f"{found.arrays:,} array{'' if found.arrays == 1 else 's'} ({labels.size(found.array_bytes)})"
            print(f"daemon    pid {found.pid} at {found.address}, on {', '.join(found.devices)}; it holds {held}")
        except (JitserverError, msgspec.MsgspecError) as error:
            print(f"daemon    none: {error}")
        for each in lines(report_now()):
            print(each)


class ProgressDisplay:
    """Line that says what is done and for how long, and disappears at the end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._began = time.monotonic()
        self._handle: DisplayHandle | None = None
        self._stopped = threading.Event()
        self._lock = threading.Lock()

    def start(self) -> None:
        """Show the line."""
        self._handle = display(self._line(), display_id=True)
        Thread(self._refresh, "progress").start()

    def describe(self, text: str) -> None:
        """Show another text."""
        self._text = text

    def stop(self) -> None:
        """Remove the line, if it is shown."""
        with self._lock:
            self._stopped.set()
            if self._handle is not None:
                self._handle.update(HTML(""))

    def _refresh(self) -> None:
        assert self._handle is not None
        while not self._stopped.wait(_PERIOD_SECONDS):
            with self._lock:  # the line must not return after it was removed
                if not self._stopped.is_set():
                    self._handle.update(self._line())

    def _line(self) -> HTML:
        seconds = time.monotonic() - self._began
        return HTML(f"<progress></progress> <code>{html.escape(self._text)}</code> {seconds:.0f} s")
