"""Daemons of the hosts of pools, for the commands that start, show and end them.

On this machine and over ssh, these are the user's own daemons there. On a Ray cluster they are those that actors keep.
"""

import functools
import json
import subprocess
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from jitclient.errors import DaemonUnavailable, HostUnreachable, JitserverError, SettingsError
from jitclient.pools.ray_cluster import RayCluster, is_ray
from jitclient.session import launch
from jitclient.wire.address import remote
from jitclient.wire.ssh import SshAddress

_NOT_RUNNING = 3
_LOCAL = "local"
_PATIENCE_SECONDS = 60.0


class HostDaemon(Protocol):
    """Daemon of one host.

    Attributes:
        name: name of the host.
    """

    name: str

    def start(self) -> None:
        """Start the daemon, unless it runs. Raises: JitserverError: it does not start."""
        ...

    def status(self) -> dict[str, Any]:
        """Return what `jitserver status --json` prints there; `{"running": False}` if no daemon runs."""
        ...

    def stop(self) -> None:
        """End the daemon, if it runs."""
        ...


class _Commanded:
    """Daemon that commands of `jitserver` reach, run by this machine.

    Args:
        address: address of the other machine; None for this one.
    """

    def __init__(self, address: SshAddress | None) -> None:
        self.name = _LOCAL if address is None else str(address)
        self._address = address

    def start(self) -> None:
        self._run("start")

    def status(self) -> dict[str, Any]:
        return self._run("status")

    def stop(self) -> None:
        self._run("stop")

    def _run(self, word: str) -> dict[str, Any]:
        words = (word, "--json")
        address = self._address
        command = launch.program(*words) if address is None else address.background_command("jitserver", *words)
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if address is not None and not done.stdout:
            raise address.refusal(done.returncode, done.stderr.strip(), "command")
        return _answer(self.name, done.returncode, done.stdout, done.stderr)


class _InActor:
    """Daemon on a node of a Ray cluster, which an actor keeps.

    Args:
        cluster: the cluster.
        name: name of the actor, or of the host that it will be for.
        find: returns the actor with its daemon.
    """

    def __init__(self, cluster: RayCluster, name: str, find: Callable[[], Any]) -> None:
        self.name = f"{cluster.address} {name}"
        self._ray, self._find = cluster.ray, find

    def start(self) -> None:
        self._find()

    def status(self) -> dict[str, Any]:
        return self._run(self._find(), "status")

    def stop(self) -> None:
        actor = self._find()
        try:
            self._run(actor, "stop")
        finally:
            # Also that of a node that is gone, which would wait for it.
            self._ray.kill(actor)

    def _run(self, actor: Any, word: str) -> dict[str, Any]:
        try:
            return _answer(self.name, *self._ray.get(actor.run.remote(word, "--json"), timeout=_PATIENCE_SECONDS))
        except JitserverError:
            raise
        except Exception as error:
            raise HostUnreachable(f"{self.name}: its actor does not answer: {str(error) or repr(error)}") from error


def daemons_of(address: str) -> list[HostDaemon]:
    """Return the daemons of the hosts at an address: `local`, `ssh://...`, or all that actors keep on a Ray cluster.

    Raises:
        SettingsError: the address is invalid.
        JitserverError: the Ray cluster cannot be used.
    """
    if is_ray(address):
        cluster = RayCluster(address, {})
        return [_InActor(cluster, name, functools.partial(cluster.named, name)) for name in cluster.names()]
    if address == _LOCAL:
        return [_Commanded(None)]
    if (found := remote(address)) is not None:
        return [_Commanded(found)]
    raise SettingsError(
        f"cluster: {address!r}: expected local, ssh://[user@]host[:port][/path/to/environment], ray, or "
        "ray://head:port. A daemon under SLURM ends with its job"
    )


def daemons_to_start(address: str, options: Mapping[str, Any]) -> list[HostDaemon]:
    """Return the daemons that a pool at an address would use, which may not run.

    Args:
        address: as for `daemons_of`.
        options: of a Ray cluster: `gpus`, the number of accelerators of each host, and `hosts`, their number.

    Raises:
        JitserverError: as for `daemons_of`.
    """
    if not is_ray(address):
        return daemons_of(address)
    cluster = RayCluster(address, options)
    return [
        _InActor(cluster, f"host {number + 1}", functools.partial(_started, cluster, number))
        for number in range(cluster.hosts)
    ]


def _started(cluster: RayCluster, number: int) -> Any:
    return cluster.daemon(number)[0]


def _answer(name: str, status: int, printed: str, said: str) -> dict[str, Any]:
    """Return the object that a command of `jitserver` has printed, also if there is no daemon.

    Raises:
        DaemonUnavailable: the command failed.
    """
    try:
        found = json.loads(printed)
    except ValueError:
        found = {"error": said.strip() or f"exit status {status}"}
    if status in (0, _NOT_RUNNING):
        return dict(found)
    raise DaemonUnavailable(f"{name}: {found.get('error', found)}")
