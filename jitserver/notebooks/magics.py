"""The magic `%jitserver`."""

import shlex
from typing import Any

import msgspec
from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_magic, magics_class

from jitclient.api import keeping
from jitclient.api.report import lines, report_of
from jitclient.core.settings import settings
from jitclient.errors import JitserverError
from jitclient.session.handshake import ask
from jitclient.wire import labels
from jitclient.wire.introspection import Status
from jitclient.wire.messages import Verb

_USAGE = "Use %jitserver, %jitserver keep NAME ... or %jitserver kept NAME ..."


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
        for each in lines(report_of()):
            print(each)
