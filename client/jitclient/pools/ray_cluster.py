"""Ray clusters: the connection, the daemons on their nodes, and the workers beside them.

Ray chooses nothing here but the accelerators: it reserves resources, starts actors (`actors.py`), and ends them. A
*place* is a node, or as many of its accelerators as each host of the pool has. The daemon of a place is kept by a
detached actor with a name, so the next program finds it. A host keeps its place until its node is gone.
"""

import contextlib
import logging
import socket
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

from jitclient.core.digests import digest
from jitclient.errors import HostUnreachable, Incompatible, JitserverError, SettingsError, WorkerLost
from jitclient.pools import versions
from jitclient.pools.actor_process import ActorProcess
from jitclient.pools.actors import DaemonActor, WorkerActor
from jitclient.version import __version__

_HERE = ("ray", "auto")
_CLIENT = "ray://"
_NAMESPACE = "jitserver"
_OPTIONS = ("gpus", "hosts")
# Less than the time that a link waits, whose message would not have the reason.
_START_SECONDS = 120.0
# Fields of a runtime environment with which a node runs another Python, or other packages, for one job.
_OTHER_ENVIRONMENTS = {"conda", "container", "image_uri", "pip", "py_executable", "uv"}

_connected_to = ""


def is_ray(address: str) -> bool:
    """Return whether an address is that of a Ray cluster."""
    return address in _HERE or address.startswith(_CLIENT)


class Place(NamedTuple):
    """Node of the cluster, or some of its accelerators.

    Attributes:
        machine: name of the node's machine.
        node: Ray's id of the node.
        number: number of the place on its node.
    """

    machine: str
    node: str
    number: int


class RayCluster:
    """Cluster that a pool or a command uses, by its address: `ray` or `auto` for the one of this machine or program.

    Args:
        address: `ray`, `auto`, or `ray://head:port`.
        options: `gpus`, the number of accelerators of each host, and `hosts`, their number.

    Attributes:
        ray: the module, connected.
        hosts: number of hosts; as many as there are places, unless the options say how many.

    Raises:
        SettingsError: Ray is not installed, or the cluster lacks the nodes.
        TypeError: an option is unknown.
        HostUnreachable: the cluster cannot be reached.
        Incompatible: Ray has another version there.
    """

    def __init__(self, address: str, options: Mapping[str, Any]) -> None:
        if unknown := options.keys() - set(_OPTIONS):
            because = (
                ". The daemons outlive this program, so the nodes must have its packages before; `initializer=` sets "
                "what a worker needs beside them"
                if "runtime_env" in unknown
                else ""
            )
            raise TypeError(f"pool: {', '.join(sorted(unknown))}: a Ray cluster has no such option{because}")
        self.address = address
        self.ray = _connect(address)
        self._gpus = options.get("gpus", 0)
        self._lock = threading.Lock()
        self._taken: dict[int, Place] = {}
        found, wanted = len(self._places()), options.get("hosts")
        self.hosts: int = found if wanted is None else wanted
        if not 0 < self.hosts <= found:
            kind = f"{self._gpus:g} GPUs and a processor" if self._gpus else "a processor"
            raise SettingsError(
                f"pool: {address}: {'some' if wanted is None else wanted} hosts with {kind} are wanted, and the "
                f"cluster has {found}. `ray status` shows its nodes"
            )

    def place(self, number: int) -> Place:
        """Return the place of a host: the one that it had, or another one if that node is gone.

        Raises:
            HostUnreachable: no place is left.
        """
        with self._lock:
            places = self._places()
            if (taken := self._taken.get(number)) in places:
                return taken
            others = {place for other, place in self._taken.items() if other != number}
            # Daemons that run have programs in memory.
            running = self.names()
            free = sorted((self._name(place) not in running, place) for place in places if place not in others)
            if not free:
                raise HostUnreachable(
                    f"pool: {self.address}: no node is left for host {number + 1} of {self.hosts}; `ray status` shows "
                    "the nodes"
                )
            place = self._taken[number] = free[0][1]
            return place

    def daemon(self, number: int) -> tuple[Any, Mapping[str, str]]:
        """Return the actor with the daemon of a host, and the variables with which a worker there finds it.

        Raises:
            HostUnreachable: the node or the accelerators are not available.
            Incompatible: the node has other versions.
            WorkerLost: the daemon cannot be started there.
        """
        place = self.place(number)
        name = self._name(place)
        actor = self._started(
            place,
            DaemonActor,
            f"ray-{digest(name.encode(), 6).hex()}",
            name=name,
            namespace=_NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            max_restarts=-1,
            max_task_retries=-1,
            max_concurrency=8,
            num_cpus=0,
            num_gpus=self._gpus,
        )
        there, variables = self._first_answer(actor.start.remote(), place, f"{self._gpus:g} GPUs are free")
        # The actor of an earlier program has the versions of that time.
        where = f"node {place.machine} of the Ray cluster (after a change there, run `jitserver cluster down`)"
        versions.check(versions.installed(), there, where, "pip install")
        return actor, variables

    def worker(self, number: int) -> Any:
        """Start a worker on a host, beside its daemon; return its actor. Raises: as `daemon` does."""
        _, variables = self.daemon(number)
        place = self.place(number)
        actor = self._started(place, WorkerActor, variables, max_concurrency=4, num_cpus=1)
        self._first_answer(actor.pid.remote(), place, "a processor is free")
        return actor

    def names(self) -> list[str]:
        """Return the names of the actors with daemons, those of other programs as well."""
        found = self.ray.util.list_named_actors(all_namespaces=True)
        return sorted(each["name"] for each in found if each["namespace"] == _NAMESPACE)

    def named(self, name: str) -> Any:
        """Return the actor of that name. Raises: ValueError: it is gone."""
        return self.ray.get_actor(name, namespace=_NAMESPACE)

    def _places(self) -> list[Place]:
        found = []
        for node in self.ray.nodes():
            resources = node["Resources"]
            count = int(resources.get("GPU", 0) // self._gpus) if self._gpus else 1
            if node["Alive"] and resources.get("CPU", 0) >= 1:
                found += [Place(node["NodeManagerHostname"], node["NodeID"], number) for number in range(count)]
        return found

    def _name(self, place: Place) -> str:
        part = f" gpus={self._gpus:g} #{place.number + 1}" if self._gpus else ""
        return f"{place.machine} {place.node[:8]}{part}"

    def _started(self, place: Place, kind: type, argument: Any, **options: Any) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        at = NodeAffinitySchedulingStrategy(place.node, soft=False)
        try:
            return self.ray.remote(kind).options(scheduling_strategy=at, **options).remote(argument)
        except Exception as error:
            raise _explained(error, place) from error

    def _first_answer(self, answer: Any, place: Place, needs: str) -> Any:
        try:
            return self.ray.get(answer, timeout=_START_SECONDS)
        except TimeoutError as error:
            raise HostUnreachable(
                f"pool: Ray has started nothing on node {place.machine} within {_START_SECONDS:.0f} s. Look whether "
                f"{needs} there: `ray status` shows what is used, and `jitserver cluster down` ends daemons"
            ) from error
        except Exception as error:
            raise _explained(error, place) from error


class OnRay:
    """Host on a Ray cluster: a place that may move to another node when its own is gone.

    Args:
        cluster: the cluster.
        number: number of the host.
    """

    has_queue = False
    # Stands for the address of a daemon that is never that of the driver.
    daemon = "the place's own"

    def __init__(self, cluster: RayCluster, number: int) -> None:
        self.name = f"ray {number + 1}"
        self._cluster, self._number = cluster, number
        self._process: ActorProcess | None = None

    def start(self, stream: socket.socket) -> ActorProcess:
        """Start a worker there, whose standard input and output are the stream."""
        self._process = ActorProcess(self._cluster.ray, lambda: self._cluster.worker(self._number), stream)
        return self._process

    def pip(self) -> str:
        """Return the command that installs a package on a node."""
        return "pip install"

    def refusal(self, status: int | None, said: str) -> JitserverError:
        """Return the error for a worker that exited, or was lost, during its start."""
        failure = None if self._process is None else self._process.failure
        if isinstance(failure, JitserverError):
            return failure
        return WorkerLost(f"pool: Ray has started no worker as {self.name} (status {status}): {said}")


def _connect(address: str) -> Any:
    """Return the module `ray`, connected to the cluster, with the connection of the program if it has one."""
    global _connected_to
    try:
        import ray
    except ImportError as error:
        raise SettingsError(
            f'pool: {address}: the package ray is not installed here. Run `pip install "jitserver[ray]"`'
        ) from error
    if ray.is_initialized():
        if address not in (*_HERE, _connected_to):
            raise SettingsError(
                f'pool: {address}: this program is connected to a Ray cluster already; pool("ray") uses that one'
            )
    else:
        options = {} if address.startswith(_CLIENT) else {"log_to_driver": False, "logging_level": logging.WARNING}
        try:
            ray.init("auto" if address in _HERE else address, **options)
        except Exception as error:
            kind = Incompatible if "version mismatch" in str(error).lower() else HostUnreachable
            raise kind(f"pool: {address}: no connection to the Ray cluster: {error}") from error
        _connected_to = address
    other = _OTHER_ENVIRONMENTS & dict(ray.get_runtime_context().runtime_env).keys()
    if other:
        raise SettingsError(
            f"pool: {address}: this job has a runtime environment with {', '.join(sorted(other))}, and daemons outlive "
            "it. Install the packages on the nodes, and leave it out; working_dir and env_vars may stay"
        )
    return ray


def _explained(error: Exception, place: Place) -> JitserverError:
    """Return the error for an actor that Ray did not start, or lost."""
    text = str(error)
    if "ModuleNotFoundError" in text or isinstance(error, ModuleNotFoundError):
        return Incompatible(
            f"pool: node {place.machine} of the Ray cluster lacks jitserver in the environment of `ray start`. Run "
            f"`pip install jitserver[server]=={__version__}` there, and start Ray again ({text.splitlines()[-1]})"
        )
    last = next((line for line in reversed(text.splitlines()) if line.strip()), repr(error))
    with contextlib.suppress(AttributeError):
        last = str(error.cause)  # type: ignore[attr-defined]  # of an exception in the actor
    return WorkerLost(f"pool: Ray cannot start it on node {place.machine}: {last}")
