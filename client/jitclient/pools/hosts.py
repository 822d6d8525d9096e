"""Hosts of a pool, by their addresses: the process that runs a worker there, and the error if that fails."""

import dataclasses
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import IO, Any, Protocol

from jitclient.errors import JitserverError, SettingsError, WorkerLost
from jitclient.pools.ray_cluster import OnRay, RayCluster, is_ray
from jitclient.session import launch
from jitclient.wire.address import remote
from jitclient.wire.ssh import SshAddress

_LOCAL = re.compile(r"local:(\d+)")
_SLURM = "slurm"
_COMMAND = "pool-worker"
_NODES_OWN = "the node's own"
"""Stands for the address of a daemon that is never that of the driver."""


class Process(Protocol):
    """Process of a worker, or of the command that reaches it: the part of `subprocess.Popen` that a link uses."""

    returncode: int | None
    stderr: IO[bytes] | None

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for its exit. Raises: subprocess.TimeoutExpired."""
        ...

    def terminate(self) -> None:
        """Ask it to exit."""
        ...

    def kill(self) -> None:
        """End it at once."""
        ...


class Host(Protocol):
    """Place for one worker.

    Attributes:
        name: name of the host for people, and for telling hosts apart.
        daemon: address of the daemon that the worker uses; empty for the user's own on this machine.
        has_queue: whether hours may pass until a worker starts.
    """

    name: str
    daemon: str
    has_queue: bool

    def start(self, stream: socket.socket) -> Process:
        """Start a worker there, whose standard input and output are the stream."""
        ...

    def pip(self) -> str:
        """Return the command that installs a package there."""
        ...

    def refusal(self, status: int | None, said: str) -> JitserverError:
        """Return the error for a process that exited without a worker's greeting."""
        ...


class _ByCommand:
    """Host on which a command of this machine runs a worker."""

    variables: Mapping[str, str] = {}

    def command(self) -> list[str]:
        """Return the command that runs a worker there."""
        raise NotImplementedError

    def start(self, stream: socket.socket) -> Process:
        """Run the command, whose standard input and output are the stream."""
        return subprocess.Popen(
            self.command(),
            stdin=stream.fileno(),
            stdout=stream.fileno(),
            stderr=subprocess.PIPE,
            env={**os.environ, **self.variables},
        )


class Local(_ByCommand):
    """This machine.

    Args:
        daemon: address of the daemon that this program uses; empty for the user's own.
    """

    has_queue = False

    def __init__(self, daemon: str) -> None:
        self.name, self.daemon = "local", daemon
        self.variables = {"JITSERVER_ADDRESS": daemon} if daemon else {}

    def command(self) -> list[str]:
        """Return the command that runs a worker with this Python."""
        return launch.program(_COMMAND)

    def pip(self) -> str:
        """Return the command that installs a package in this environment."""
        return f"{sys.executable} -m pip install"

    def refusal(self, status: int | None, said: str) -> JitserverError:
        """Return the error for a worker that exited during its start."""
        return WorkerLost(f"pool: no worker starts on this machine (status {status}): {said}")


class OverSsh(_ByCommand):
    """Machine that the system's ssh reaches.

    Args:
        address: address of the machine and of the environment there.
    """

    has_queue = False

    def __init__(self, address: SshAddress) -> None:
        self._ssh = address
        self.daemon = str(address)
        self.name = str(dataclasses.replace(address, environment="")).removeprefix("ssh://")

    def command(self) -> list[str]:
        """Return the command that runs a worker in the environment there."""
        return self._ssh.background_command("jitserver", _COMMAND)

    def pip(self) -> str:
        """Return the command that installs a package there."""
        return self._ssh.shown("pip", "install")

    def refusal(self, status: int | None, said: str) -> JitserverError:
        """Return the error for an ssh that exited without a worker's greeting."""
        return self._ssh.refusal(status, said, "worker")


class UnderSlurm(_ByCommand):
    """Node that SLURM chooses: each worker is a job of its own, which `srun` submits and waits for.

    The node sees the files of this machine, as nodes of a cluster do, and runs the worker in this environment. When the
    job ends, at its time limit or by `scancel`, another one takes its place.

    Args:
        number: number of the job in the pool.
        options: options of srun, without their dashes.
    """

    has_queue = True

    def __init__(self, number: int, options: Mapping[str, object]) -> None:
        self.name, self.daemon = f"slurm {number}", _NODES_OWN
        self._options = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]

    def command(self) -> list[str]:
        """Return the command that submits a job with a worker in this environment."""
        srun = shutil.which("srun")
        if srun is None:
            raise SettingsError('pool: host "slurm" needs the program srun, which is not on PATH')
        # Without buffers, and without the wait of a job that has lost its driver.
        fixed = ["--nodes=1", "--ntasks=1", "--unbuffered", "--job-name=jitserver-pool", "--kill-on-bad-exit"]
        return [srun, *fixed, *self._options, *Local("").command()]

    def pip(self) -> str:
        """Return the command that installs a package in this environment."""
        return Local("").pip()

    def refusal(self, status: int | None, said: str) -> JitserverError:
        """Return the error for an srun that exited without a worker's greeting."""
        return WorkerLost(f"pool: srun has started no worker (status {status}): {said}")


def hosts_of(
    addresses: str | Sequence[str], workers: int, daemon: str, options: Mapping[str, object] | None = None
) -> list[Host]:
    """Return a host for each worker of a pool.

    Args:
        addresses: `local:N`, `ssh://...`, `slurm`, `ray`, `auto` or `ray://...`, or a sequence of these.
        workers: workers on each machine of ssh, node of SLURM, or host of a Ray cluster.
        daemon: address of the daemon that this program uses.
        options: options of the one address that has some: those of `UnderSlurm` and `nodes`, or of `RayCluster`.

    Raises:
        SettingsError: an address is invalid.
        TypeError: there are options, and no address, or more than one, that has some.
        JitserverError: as for `RayCluster`.
    """
    named, options = [addresses] if isinstance(addresses, str) else list(addresses), dict(options or {})
    with_options = [address for address in named if address == _SLURM or is_ray(address)]
    if options and len(with_options) != 1:
        raise TypeError(
            f"pool: {', '.join(options)}: only slurm and Ray have options, and these need a pool of their own"
        )
    found = [host for address in named for host in _hosts_at(address, workers, daemon, options)]
    if not found:
        raise SettingsError('pool: no host is named. Pass "local:4", "ssh://host", or a list of such addresses')
    return found


def _hosts_at(address: str, workers: int, daemon: str, options: Mapping[str, Any]) -> Sequence[Host]:
    if (local := _LOCAL.fullmatch(address)) and int(local[1]):
        return [Local(daemon) for _ in range(int(local[1]))]
    if is_ray(address):
        cluster = RayCluster(address, options)
        return [OnRay(cluster, number) for number in range(cluster.hosts) for _ in range(workers)]
    if (found := remote(address)) is not None:
        return [OverSsh(found) for _ in range(workers)]
    if address == _SLURM:
        of_srun = {name: value for name, value in options.items() if name != "nodes"}
        return [UnderSlurm(number, of_srun) for number in range(1, options.get("nodes", 1) * workers + 1)]
    raise SettingsError(
        f"pool: host {address!r}: expected local:N, ssh://[user@]host[:port][/path/to/environment], slurm, ray, or "
        "ray://head:port"
    )
