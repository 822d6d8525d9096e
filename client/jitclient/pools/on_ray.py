"""Pools on a Ray cluster: each worker is an actor, which keeps its accelerators and its warm process."""

import collections
import functools
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from jitclient.errors import HostUnreachable, WorkerLost
from jitclient.pools import tasks
from jitclient.pools.engine import Prepare, imported
from jitclient.pools.tasks import Outcome

_HERE = ("ray", "auto")


class Actor:
    """Worker, as Ray runs it.

    Args:
        prepare: what it calls before its first task, and again when Ray has started it again.
    """

    def __init__(self, prepare: bytes) -> None:
        self._prepare = prepare

    def begin(self) -> None:
        """Prepare this process. Raises: Exception: `prepare` raised it."""
        prepare, self._prepare = self._prepare, b""
        if prepare:
            tasks.loads(prepare)()

    def run(self, function: bytes, chunk: Sequence[bytes]) -> list[Outcome]:
        """Run `tasks.run(chunk, function)`."""
        self.begin()
        return tasks.run(chunk, function)


class _Task(NamedTuple):
    name: str
    function: bytes
    chunk: Sequence[bytes]
    future: "Future[list[Outcome]]"
    left: int


class OnRay:
    """Engine on a Ray cluster.

    Attributes:
        client: the module `ray`.
    """

    def __init__(
        self, address: str, gpus: float, hosts: int | None, workers: int, retries: int, seconds: float, prepare: Prepare
    ) -> None:
        """Start the workers.

        Args:
            address: `ray://head:port`, or `ray` for the cluster of this program or machine.
            gpus: accelerators of each host.
            hosts: number of hosts; None: all that the cluster has.
            workers: number of workers on each host.
            retries: how often a task runs again whose worker died.
            seconds: how long to wait for the first worker.
            prepare: what each worker calls first.

        Raises:
            HostUnreachable: there is no such cluster, or it starts no worker in time.
            Exception: `prepare` raised it in a worker.
        """
        ray = self.client = imported("ray", "ray")
        self._is_ours = not ray.is_initialized()
        if self._is_ours:
            try:
                ray.init("auto" if address in _HERE else address, log_to_driver=True, logging_level="error")
            except Exception as error:
                raise HostUnreachable(f"pool: there is no Ray cluster at {address}: {error}") from error
        count = workers * (hosts or _hosts(ray, gpus))
        kind = ray.remote(Actor).options(
            num_cpus=1,
            num_gpus=gpus / workers,
            scheduling_strategy="SPREAD",
            max_restarts=-1,
        )
        self._retries = retries
        self._lock = threading.Lock()
        self._waiting: collections.deque[_Task] = collections.deque()
        self._idle: list[Any] = []
        self._actors = [kind.remote(tasks.dumps(prepare)) for _ in range(count)]
        started = {actor.begin.remote(): actor for actor in self._actors}
        try:
            self._wait(started, seconds)
        except BaseException:
            self.close()
            raise

    def _wait(self, started: dict[Any, Any], seconds: float) -> None:
        """Wait for the first worker; those that start later join then."""
        ready, _ = self.client.wait(list(started), num_returns=1, timeout=seconds)
        if not ready:
            raise HostUnreachable(f"pool: Ray has started no worker within {seconds:.0f} s: are its hosts in use?")
        try:
            self.client.get(ready[0])
        except self.client.exceptions.RayTaskError as error:
            raise getattr(error, "cause", None) or error from None
        except self.client.exceptions.RayActorError as error:
            raise HostUnreachable(f"pool: Ray cannot start a worker: {error}") from error
        for begun, actor in started.items():
            begun.future().add_done_callback(functools.partial(self._join, actor))

    def _join(self, actor: Any, begun: "Future[None]") -> None:
        if begun.exception() is None:
            self._add(actor)

    def _add(self, actor: Any) -> None:
        with self._lock:
            self._idle.append(actor)
        self._feed()

    def submit(self, name: str, function: bytes, chunks: Sequence[Sequence[bytes]]) -> "list[Future[list[Outcome]]]":
        """Let workers run `tasks.run(chunk, function)` for each chunk."""
        new = [_Task(name, function, chunk, Future(), self._retries) for chunk in chunks]
        with self._lock:
            self._waiting += new
        self._feed()
        return [task.future for task in new]

    def note_begun(self) -> None:
        """Do nothing: the futures know."""

    def _feed(self) -> None:
        """Give each idle worker a task."""
        while True:
            with self._lock:
                if not (self._idle and self._waiting):
                    return
                task = self._waiting.popleft()
                if not (task.future.running() or task.future.set_running_or_notify_cancel()):
                    continue
                actor = self._idle.pop()
            done = actor.run.remote(task.function, task.chunk).future()
            done.add_done_callback(functools.partial(self._settle, actor, task))

    def _settle(self, actor: Any, task: _Task, done: "Future[list[Outcome]]") -> None:
        try:
            task.future.set_result(done.result())
        except self.client.exceptions.RayActorError as error:
            self._try_again(actor, task, error)
            return
        except Exception as error:
            task.future.set_exception(error)
        self._add(actor)

    def _try_again(self, actor: Any, task: _Task, error: Exception) -> None:
        """Give a task to another worker while Ray starts this one again.

        Ray itself would count an attempt that finds the worker gone like one in which it died.
        """
        if task.left:
            with self._lock:
                self._waiting.appendleft(task._replace(left=task.left - 1))
            self._feed()
        else:
            task.future.set_exception(WorkerLost(f"{task.name}: its worker died {self._retries + 1} times ({error})"))
        begun = actor.begin.options(max_task_retries=-1).remote()
        begun.future().add_done_callback(functools.partial(self._join, actor))

    def close(self) -> None:
        """End the workers, and the connection if the pool has made it."""
        for actor in self._actors:
            self.client.kill(actor)
        if self._is_ours:
            self.client.shutdown()


def _hosts(ray: Any, gpus: float) -> int:
    """Return how many hosts a cluster has: nodes with a processor, or each so many accelerators of a node."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    found = sum(int(node.get("GPU", 0) // gpus) if gpus else 1 for node in nodes)
    if not found:
        raise HostUnreachable(f"pool: no node of the Ray cluster has {gpus:g} accelerators and a processor")
    return found
