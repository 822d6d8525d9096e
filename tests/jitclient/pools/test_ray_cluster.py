"""Hosts on a Ray cluster, with the few functions of Ray that they use replaced by ones that need no cluster."""

import concurrent.futures
import contextlib
import socket
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import jitclient
from jitclient.errors import HostUnreachable, Incompatible, JitserverError, SettingsError, WorkerLost
from jitclient.pools import ray_cluster
from jitclient.pools.actors import WorkerActor
from jitclient.pools.hosts import hosts_of
from jitclient.pools.ray_cluster import OnRay, RayCluster
from jitclient.pools.versions import installed


class Actor:
    """Runs the methods of an object in threads, and returns futures of what they return."""

    def __init__(self, kind: type, argument: Any, options: dict[str, Any]) -> None:
        self.kind, self.options = kind, options
        self._threads = concurrent.futures.ThreadPoolExecutor()
        self._object = self._threads.submit(kind, argument)

    def __getattr__(self, name: str) -> Any:
        def remote(*args: Any) -> Any:
            return self._threads.submit(lambda: getattr(self._object.result(), name)(*args))

        return types.SimpleNamespace(remote=remote)

    def kill(self) -> None:
        made = self._object.result() if self._object.exception() is None else None
        if isinstance(made, WorkerActor) and made._stream.fileno() >= 0:
            # As at the end of the actor's process.
            made._process.kill()
            with contextlib.suppress(OSError):
                made._stream.shutdown(socket.SHUT_RDWR)
            self._threads.shutdown()
            made._process.wait()
            made._stream.close()
            made._process.stderr.close()  # type: ignore[union-attr]


class Ray(types.ModuleType):
    """The functions of Ray that we use."""

    def __init__(self) -> None:
        super().__init__("ray")
        self.here: list[dict[str, Any]] = []
        self.named: dict[str, Actor] = {}
        self.started: list[Actor] = []
        self.runtime_env: dict[str, Any] = {}
        self.addresses: list[str] = []
        self.util = types.SimpleNamespace(
            list_named_actors=lambda all_namespaces: [{"name": name, "namespace": "jitserver"} for name in self.named]
        )

    def add(self, machine: str, gpus: int = 0, cpus: int = 4, alive: bool = True) -> dict[str, Any]:
        resources = {"CPU": float(cpus), **({"GPU": float(gpus)} if gpus else {})}
        self.here.append(
            {"NodeManagerHostname": machine, "NodeID": f"id of {machine}", "Alive": alive, "Resources": resources}
        )
        return self.here[-1]

    def is_initialized(self) -> bool:
        return bool(self.addresses)

    def init(self, address: str, **_: Any) -> None:
        self.addresses.append(address)

    def nodes(self) -> list[dict[str, Any]]:
        return self.here

    def get_runtime_context(self) -> Any:
        return types.SimpleNamespace(runtime_env=self.runtime_env)

    def remote(self, kind: type) -> Any:
        def with_options(**options: Any) -> Any:
            def start(argument: Any) -> Actor:
                name = options.get("name")
                if name not in self.named:
                    self.started.append(Actor(kind, argument, options))
                    if name:
                        self.named[name] = self.started[-1]
                return self.named[name] if name else self.started[-1]

            return types.SimpleNamespace(remote=start)

        return types.SimpleNamespace(options=with_options)

    def get(self, answer: Any, timeout: float | None = None) -> Any:
        return answer.result(timeout)

    def get_actor(self, name: str, namespace: str) -> Actor:
        return self.named[name]

    def put(self, value: Any) -> Any:
        return value

    def kill(self, actor: Actor) -> None:
        actor.kill()
        self.named = {name: one for name, one in self.named.items() if one is not actor}


class Daemon:
    """The actor of a daemon, of which there is one already."""

    versions = dict(installed())

    def __init__(self, name: str) -> None:
        self.name = name

    def start(self) -> Any:
        return self.versions, {"JITSERVER_ADDRESS": jitclient.core.settings.settings().address}


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ray]:
    fake = Ray()
    strategies = types.ModuleType("ray.util.scheduling_strategies")
    strategies.NodeAffinitySchedulingStrategy = lambda node, soft: (node, soft)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.setitem(sys.modules, "ray.util", types.ModuleType("ray.util"))
    monkeypatch.setitem(sys.modules, "ray.util.scheduling_strategies", strategies)
    monkeypatch.setattr(ray_cluster, "_connected_to", "")
    monkeypatch.setattr(ray_cluster, "DaemonActor", Daemon)
    yield fake
    for actor in fake.started:
        actor.kill()


def nodes_of(cluster: RayCluster) -> list[str]:
    return [cluster.place(number).machine for number in range(cluster.hosts)]


# ---- places


def test_each_node_that_can_work_is_a_host(ray: Ray) -> None:
    ray.add("a")
    ray.add("head", cpus=0)
    ray.add("gone", alive=False)
    ray.add("b", gpus=8)
    assert nodes_of(RayCluster("ray", {})) == ["a", "b"]
    assert nodes_of(RayCluster("ray", {"hosts": 1})) == ["a"]


def test_a_node_is_as_many_hosts_as_it_has_accelerators_for(ray: Ray) -> None:
    ray.add("a", gpus=5)
    ray.add("b")
    ray.add("c", gpus=2)
    cluster = RayCluster("ray", {"gpus": 2})
    assert nodes_of(cluster) == ["a", "a", "c"]
    actors = [cluster.daemon(number)[0] for number in range(3)]
    assert len(set(actors)) == 3
    assert {actor.options["num_gpus"] for actor in actors} == {2}
    assert {actor.options["lifetime"] for actor in actors} == {"detached"}
    assert actors[2].options["scheduling_strategy"] == ("id of c", False)


def test_a_host_stays_where_it_is_until_its_node_is_gone(ray: Ray) -> None:
    ray.add("b")
    lost = ray.add("c")
    cluster = RayCluster("ray", {})
    assert nodes_of(cluster) == ["b", "c"]
    ray.add("a")
    assert nodes_of(cluster) == ["b", "c"]
    lost["Alive"] = False
    assert nodes_of(cluster) == ["b", "a"]
    ray.here[0]["Alive"] = False
    with pytest.raises(HostUnreachable, match="no node is left for host 1 of 2"):
        cluster.place(0)


def test_a_pool_prefers_nodes_with_warm_daemons(ray: Ray) -> None:
    for machine in "ab":
        ray.add(machine)
    first = RayCluster("ray", {})
    first.place(0)
    kept, _ = first.daemon(1)
    again = RayCluster("ray", {"hosts": 1})
    assert again.place(0).machine == "b"
    assert again.daemon(0)[0] is kept


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"hosts": 3}, r"3 hosts with a processor are wanted, and the cluster has 2"),
        ({"gpus": 2}, r"some hosts with 2 GPUs and a processor are wanted, and the cluster has 0"),
        ({"hosts": 0}, r"0 hosts"),
        ({"runtime_env": {}}, r"runtime_env: a Ray cluster has no such option\. The daemons outlive this program"),
        ({"gres": "gpu:1"}, r"gres: a Ray cluster has no such option$"),
    ],
)
def test_options_that_cannot_be_met_are_refused(ray: Ray, options: dict[str, Any], error: str) -> None:
    ray.add("a", gpus=1)
    ray.add("b", gpus=1)
    with pytest.raises((SettingsError, TypeError), match=error):
        RayCluster("ray", options)


def test_options_are_for_one_address(ray: Ray) -> None:
    ray.add("a")
    for addresses in ("local:2", ["ray", "slurm"]):
        with pytest.raises(TypeError, match="only slurm and Ray have options"):
            hosts_of(addresses, 1, "", {"gpus": 1})
    assert [host.name for host in hosts_of(["ray", "local:1"], 2, "")] == ["ray 1", "ray 1", "local"]


# ---- the connection


def test_the_address_is_rays_or_the_one_that_the_program_has(ray: Ray) -> None:
    ray.add("a")
    RayCluster("ray://head:10001", {})
    RayCluster("ray://head:10001", {})
    RayCluster("auto", {})
    assert ray.addresses == ["ray://head:10001"]
    with pytest.raises(SettingsError, match=r'connected to a Ray cluster already; pool\("ray"\) uses that one'):
        RayCluster("ray://other:10001", {})


def test_a_cluster_that_cannot_be_used_is_an_error_that_says_why(ray: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(text: str) -> Callable[..., None]:
        def init(*_: Any, **__: Any) -> None:
            raise RuntimeError(text)

        return init

    monkeypatch.setattr(ray, "init", fail("Version mismatch: The cluster was started with: Ray: 2.0"))
    with pytest.raises(Incompatible, match=r"pool: ray: .*Version mismatch.*Ray: 2\.0"):
        RayCluster("ray", {})
    monkeypatch.setattr(ray, "init", fail("ray client connection timeout"))
    with pytest.raises(HostUnreachable, match=r"pool: ray://head:1: .*connection timeout"):
        RayCluster("ray://head:1", {})
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SettingsError, match=r'pip install "jitserver\[ray\]"'):
        RayCluster("ray", {})


def test_a_job_with_another_python_environment_is_refused(ray: Ray) -> None:
    ray.add("a")
    ray.runtime_env = {"env_vars": {"A": "1"}, "working_dir": "."}
    RayCluster("ray", {})
    ray.runtime_env["pip"] = ["optax"]
    with pytest.raises(SettingsError, match="a runtime environment with pip, and daemons outlive it"):
        RayCluster("ray", {})


# ---- daemons and workers


def test_versions_are_compared_before_a_worker_starts(ray: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    ray.add("a")
    monkeypatch.setattr(Daemon, "versions", {**installed(), "jax": "0.0.1"})
    with pytest.raises(Incompatible, match=r"node a of the Ray cluster .*jax is .* here and 0\.0\.1 there"):
        jitclient.pool("ray")
    assert [actor.kind for actor in ray.started] == [Daemon]


@pytest.mark.parametrize(
    ("raised", "kind", "error"),
    [
        (ModuleNotFoundError("No module named 'jitclient'"), Incompatible, "node a .* lacks jitserver in the environ"),
        (TimeoutError(), HostUnreachable, "nothing on node a within 120 s. Look whether 1 GPUs are free"),
        (OSError("no room"), WorkerLost, "cannot start it on node a: no room"),
    ],
)
def test_a_node_that_starts_nothing_is_an_error_with_its_name(
    ray: Ray, monkeypatch: pytest.MonkeyPatch, raised: Exception, kind: type[JitserverError], error: str
) -> None:
    ray.add("a", gpus=1)

    def start(_: Daemon) -> Any:
        raise raised

    monkeypatch.setattr(Daemon, "start", start)
    with pytest.raises(kind, match=error):
        RayCluster("ray", {"gpus": 1}).daemon(0)
    with pytest.raises(kind, match=error):
        jitclient.pool("ray", gpus=1)


@pytest.mark.slow
def test_tasks_run_in_workers_of_actors(daemon: str, ray: Ray, capfd: pytest.CaptureFixture[str]) -> None:
    def work(number: int) -> int:
        import os
        import signal

        print("a print of a task", flush=True)
        if number == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    ray.add("a")
    ray.add("b")
    with jitclient.pool("ray", retries=0, workers=2) as pool:
        futures = [pool.submit(work, number) for number in range(6)]
        assert [future.result() for future in futures if future is not futures[3]] == [0, 1, 2, 4, 5]
        with pytest.raises(WorkerLost, match=r"work\(3\): its worker died once, the last time with signal 9"):
            futures[3].result()
        large = b"x" * (5 << 20)
        assert pool.submit(bytes.upper, large).result() == large.upper()
    assert "[ray 1 1] a print of a task" in capfd.readouterr().err
    # The workers' actors have been ended, and the daemons' stay.
    assert [actor.kind for actor in ray.named.values()] == [Daemon, Daemon]


def test_an_actor_that_is_lost_says_why(ray: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    ray.add("a")
    cluster = RayCluster("ray", {})

    def lost(_: Any, timeout: float | None = None) -> Any:
        raise RuntimeError("The node of this actor has died")

    method = types.SimpleNamespace(remote=lambda *_: None)
    actor = types.SimpleNamespace(read=method, write=method, kill=lambda: None)
    monkeypatch.setattr(cluster, "worker", lambda _: actor)
    monkeypatch.setattr(ray, "get", lost)
    host = OnRay(cluster, 0)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = host.start(theirs)
        assert process.wait(60) is None
        with process.stderr as said:
            text = said.read().decode()
    assert "node of this actor has died" in text
    assert str(host.refusal(None, text)) == f"pool: Ray has started no worker as ray 1 (status None): {text}"
