"""Setup of a worker: what its process gets before the first task, whichever engine has started it."""

import dataclasses
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jitclient.api import switch
from jitclient.capture.user_code.installed import is_user_module, stored
from jitclient.core import first_use
from jitclient.core.tracebacks import api_boundary
from jitclient.jaxside import context, jax_settings
from jitclient.pools import on_dask, tasks, versions

_MAX_FILES = 2000
_MAIN = ("__main__", "__mp_main__")


@dataclasses.dataclass(frozen=True)
class Setup:
    """Setup of a worker, called in its process.

    A pickle has it by name, with plain values only, so that hosts with other versions can read it.

    Attributes:
        versions: the versions of the program.
        sources: directories in which the program found modules of its own, each with relative paths and their texts.
        variables: environment variables, such as those of JAX's settings.
        installed: the packages of each `jitclient.install` in force.
        initializer: pickle of a function and its arguments, which each worker calls first; empty for none.
    """

    versions: Mapping[str, str]
    sources: Sequence[tuple[str, Mapping[str, bytes]]]
    variables: Mapping[str, str]
    installed: Sequence[Sequence[str]]
    initializer: bytes = b""
    __name__ = "worker_setup"  # a hook of Ray needs one

    def __call__(self) -> None:
        """Set up this process.

        Raises:
            Incompatible: its versions differ from those of the program; the message names both.
            Exception: the initializer raised it.
        """
        versions.check(self.versions, versions.installed())
        # The report of JITSERVER_REPORT is that of the program.
        first_use.forget()
        for folder, sources in reversed(self.sources):
            sys.path.insert(0, _with_sources(folder, sources))
        os.environ.update(self.variables)
        for packages in self.installed:
            switch.install(packages)
        if self.initializer:
            initializer, arguments = tasks.loads(self.initializer)
            initializer(*arguments)


@api_boundary
def worker_setup() -> Setup:
    """Return a function that sets up a worker of any engine with the modules and settings of this program.

    It compares the versions of both sides, and puts `jitclient.install` in force where the program has it. Its pickle
    needs nothing but jitserver on the other side.

    Example:
        >>> ray.init(runtime_env={"worker_process_setup_hook": jitclient.worker_setup()})
    """
    return setup_of_program()


@api_boundary
def dask_plugin() -> Any:
    """Return a plugin of Dask with which each worker calls `worker_setup()` when it starts.

    Raises:
        SettingsError: Dask is not installed.

    Example:
        >>> client.register_plugin(jitclient.dask_plugin())
    """
    return on_dask.plugin(setup_of_program())


def setup_of_program(initializer: Callable[..., object] | None = None, arguments: tuple[Any, ...] = ()) -> Setup:
    """Return the setup with which workers have the modules and settings that this program has now.

    Args:
        initializer: function that each worker calls first; None for none.
        arguments: its arguments.
    """
    return Setup(
        dict(versions.installed()),
        _sources_of_program(),
        _jax_settings(),
        [sorted(one.packages) for one in switch.in_force()],
        b"" if initializer is None else tasks.dumps((initializer, arguments)),
    )


def _jax_settings() -> dict[str, str]:
    """Return the settings of JAX that differ from its defaults and travel with calls, as environment variables."""
    return {
        name.upper(): str(value)
        for name, value in context.current()
        if name in jax_settings.CARRIED and isinstance(value, (bool, str))
    }


def _sources_of_program() -> list[tuple[str, dict[str, bytes]]]:
    found: dict[str, dict[str, bytes]] = {}
    for top in dict.fromkeys(name.partition(".")[0] for name in list(sys.modules)):
        file = stored(sys.modules.get(top), "__file__")
        if top in _MAIN or not isinstance(file, str) or not file.endswith(".py") or not is_user_module(top):
            continue
        path = Path(file).absolute()
        is_package = path.name == "__init__.py"
        folder = path.parent.parent if is_package else path.parent
        files = sorted(path.parent.rglob("*.py"))[:_MAX_FILES] if is_package else [path]
        sources = found.setdefault(str(folder), {})
        sources.update((str(each.relative_to(folder)), each.read_bytes()) for each in files)
    order = {entry: at for at, entry in enumerate(sys.path)}
    return sorted(found.items(), key=lambda item: order.get(item[0], len(order)))


def _with_sources(folder: str, sources: Mapping[str, bytes]) -> str:
    """Return a directory of this host that has these sources: the same one if it does, else a new one."""
    try:
        if all(Path(folder, name).read_bytes() == text for name, text in sources.items()):
            return folder
    except OSError:
        pass
    made = tempfile.mkdtemp(prefix="jitserver-modules-")
    for name, text in sources.items():
        path = Path(made, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    return made
