"""Pools on Dask: on workers of our own on this machine, over ssh or under SLURM, or on a cluster that exists.

Scheduler and client are in the process of the program, and both ends of each connection over ssh are on the loopback
interface of their machine, joined by ssh's forwarding of ports: nothing listens to a network. A nanny of Dask replaces
a worker that dies.
"""

import contextlib
import functools
import itertools
import json
import os
import queue
import random
import signal
import subprocess
import sys
import tempfile
import traceback
import uuid
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import IO, Any, NamedTuple

from jitclient.core.clock import monotonic, sleep
from jitclient.core.notices import print_notice
from jitclient.core.polling import Polling
from jitclient.core.threads import Thread
from jitclient.errors import HostUnreachable, JitserverError, WorkerLost
from jitclient.pools import tasks
from jitclient.pools.engine import Prepare, imported
from jitclient.pools.tasks import Outcome
from jitclient.session import launch
from jitclient.wire.ssh import SshAddress

_EXTRA = "dask"
_PLUGIN = "jitserver"
_PORTS = range(20_000, 32_000)
"""Below those that systems give to connections."""
_START_SECONDS = 180.0
_LOOPBACK = "127.0.0.1"
_COMMAND = "pool-worker"
_ANSWER_SECONDS = 5.0
_MAX_TOGETHER = 1000
_QUIET = {"DASK_LOGGING__DISTRIBUTED": "critical"}
"""Dask logs each start and end of a worker. A pool says what matters itself."""


class Place(NamedTuple):
    """Place for a worker.

    Attributes:
        name: its name, for people.
        host: another machine; None for this one.
    """

    name: str
    host: SshAddress | None


class OnDask:
    """Engine on a client of Dask.

    Attributes:
        client: the client.
    """

    def __init__(self, client: Any, prepare: Prepare, ends: contextlib.ExitStack) -> None:
        """Prepare the workers of a cluster, those that join it later as well.

        Args:
            client: a client of the cluster.
            prepare: what each worker calls first.
            ends: what to end with the pool.

        Raises:
            Exception: `prepare` raised it in a worker.
        """
        self.client, self._ends = client, ends
        self._tasks: weakref.WeakValueDictionary[str, Future[list[Outcome]]] = weakref.WeakValueDictionary()
        self._done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        client.register_plugin(plugin(prepare), name=_PLUGIN)
        Thread(self._collect, "pool: results").start()

    def submit(self, name: str, function: bytes, chunks: Sequence[Sequence[bytes]]) -> "list[Future[list[Outcome]]]":
        """Let workers run `tasks.run(chunk, function)` for each chunk."""
        keys = [f"{name}-{uuid.uuid4().hex}" for _ in chunks]
        theirs = self.client.map(tasks.run, chunks, function=function, key=keys, pure=False)
        found = [Future[list[Outcome]]() for _ in theirs]
        self._tasks.update(zip(keys, found, strict=True))
        for ours, one in zip(found, theirs, strict=True):
            ours.add_done_callback(functools.partial(_cancel_if_cancelled, one))
            one.add_done_callback(functools.partial(_put, self._done, (name, ours)))
        return found

    def note_begun(self) -> None:
        """Let the futures of tasks that workers have begun say so."""
        # The workers know: the scheduler also names tasks that it has only sent to them. A worker may hang.
        told: list[Mapping[str, Sequence[str]]] = []
        asking = Thread(lambda: told.append(self.client.run(_executing, on_error="ignore")), "pool: begun")
        asking.start()
        asking.join(_ANSWER_SECONDS)
        begun = told[0] if told else self.client.processing()
        for key in itertools.chain.from_iterable(begun.values()):
            if (ours := self._tasks.get(key)) is not None:
                _is_wanted(ours)

    def _collect(self) -> None:
        """Take the results of finished tasks from their workers, those that are there together."""
        while True:
            batch = [self._done.get()]
            while len(batch) < _MAX_TOGETHER:
                try:
                    batch.append(self._done.get_nowait())
                except queue.Empty:
                    break
            if None in batch:
                return
            good = [one for one in batch if one[1].status == "finished"]
            began = monotonic()
            try:
                values = self.client.gather([theirs for _, theirs in good])
            except (
                BaseException
            ):  # a task was cancelled, or one of the workers has died since: Dask runs its tasks again
                good = values = []
            for ((_, ours), _), value in zip(good, values, strict=True):
                if _is_wanted(ours):
                    ours.set_result(value)
            settled = {id(ours) for (_, ours), _ in good}
            for (name, ours), theirs in batch:
                if id(ours) not in settled and _is_wanted(ours):
                    _settle(name, ours, theirs)
            # The scheduler runs in this process: as long as that took it from its work, more results may gather.
            sleep(monotonic() - began)

    def close(self) -> None:
        """End the workers of the pool."""
        self._done.put(None)
        self._ends.close()


def _executing(dask_worker: Any) -> list[str]:
    """Return the keys of the tasks that run on this worker; Dask gives the worker to a parameter of this name."""
    return [task.key for task in dask_worker.state.executing]


def _is_wanted(ours: "Future[list[Outcome]]") -> bool:
    """Return whether a future was not cancelled; from now on it cannot be."""
    return ours.running() or ours.set_running_or_notify_cancel()


def _put(done: "queue.SimpleQueue[Any]", task: Any, theirs: Any) -> None:
    done.put((task, theirs))


def _cancel_if_cancelled(theirs: Any, ours: "Future[list[Outcome]]") -> None:
    if ours.cancelled():
        theirs.cancel()


def _settle(name: str, ours: "Future[list[Outcome]]", theirs: Any) -> None:
    try:
        ours.set_result(theirs.result())
    except BaseException as error:
        ours.set_exception(_of_task(name, error))


def _of_task(name: str, error: BaseException) -> BaseException:
    """Return the error of a task that Dask has given up."""
    distributed = imported("distributed", _EXTRA)
    if isinstance(error, distributed.scheduler.KilledWorker):
        count = error.allowed_failures + 1
        return WorkerLost(f"{name}: its worker died {count} times; the last was at {error.last_worker.address}")
    return error if isinstance(error, JitserverError) else WorkerLost(f"{name}: Dask has given it up ({error})")


def plugin(prepare: Prepare) -> Any:
    """Return a plugin for workers of Dask: each calls `prepare` when it starts."""
    imported("distributed", _EXTRA)
    from jitclient.pools.dask_plugin import Plugin

    return Plugin(prepare)


def on_existing(client: Any, prepare: Prepare) -> OnDask:
    """Return the engine on a cluster that exists.

    Args:
        client: a client of Dask, or the address of a scheduler.
        prepare: what each worker calls first.
    """
    ends = contextlib.ExitStack()
    if isinstance(client, str):
        address, new_client = client, imported("distributed", _EXTRA).Client
        try:
            client = ends.enter_context(new_client(address))
        except OSError as error:
            raise HostUnreachable(f"pool: no scheduler of Dask answers at {address}: {error}") from error
    return _begun(client, prepare, ends)


def on_places(places: Sequence[Place], daemon: str, retries: int, seconds: float, prepare: Prepare) -> OnDask:
    """Return the engine on workers of its own.

    Args:
        places: where they run.
        daemon: address of the daemon that workers on this machine use; empty for the user's own.
        retries: how often a task runs again whose worker died.
        seconds: time without a sign of life after which a worker is lost, and a task fails for lack of any worker.
        prepare: what each worker calls first.

    Raises:
        JitserverError: no worker starts; the message says why.
    """
    dask, distributed = imported("dask", _EXTRA), imported("distributed", _EXTRA)
    ends = contextlib.ExitStack()
    try:
        # Other users of these machines reach the loopback interface, too.
        imported("cryptography", _EXTRA)
        security = distributed.Security.temporary()
        with dask.config.set(_settings(retries, seconds)):
            cluster = distributed.LocalCluster(
                n_workers=0,
                processes=True,
                host=_LOOPBACK,
                protocol="tls://",
                security=security,
                dashboard_address=f"{_LOOPBACK}:0",
                silence_logs="CRITICAL",
            )
        ends.callback(cluster.close)
        client = distributed.Client(cluster)
        ends.callback(client.close)
        secrets = json.dumps(_certificates(security)).encode()
        started = []
        for place in places:
            started.append(_Started(place, cluster.scheduler_address, daemon, secrets))
            ends.callback(started[-1].end)
        _wait(client, started)
        return _begun(client, prepare, ends)
    except BaseException:
        ends.close()
        raise


def under_slurm(
    nodes: int, workers: int, retries: int, seconds: float, options: Mapping[str, object], prepare: Prepare
) -> OnDask:
    """Return the engine on jobs of SLURM, which start when they are through its queue.

    A node reaches the scheduler in this process over the network, so the connection is encrypted, and both sides prove
    who they are by certificates in a folder of this user's.

    Args:
        nodes: number of jobs, each on a node.
        workers: number of workers in each job.
        retries: as for `on_places`.
        seconds: time without a sign of life after which a worker is lost.
        options: options of sbatch, without their dashes.
        prepare: what each worker calls first.
    """
    dask, jobqueue = imported("dask", _EXTRA), imported("dask_jobqueue", _EXTRA)
    distributed = imported("distributed", _EXTRA)
    given = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    ends = contextlib.ExitStack()
    try:
        folder = ends.enter_context(tempfile.TemporaryDirectory(prefix=".jitserver-pool-", dir=os.path.expanduser("~")))
        with dask.config.set({**_settings(retries, seconds), "distributed.scheduler.no-workers-timeout": None}):
            cluster = jobqueue.SLURMCluster(
                cores=workers,
                processes=workers,
                memory="1 GB",
                job_name="jitserver-pool",
                # Its own defaults, where the cluster's are to hold.
                job_directives_skip=["--mem=", "--cpus-per-task=", "-t "],
                job_extra_directives=given,
                job_script_prologue=[f"export {name}={value}" for name, value in _QUIET.items()],
                worker_extra_args=["--memory-limit", "0", "--no-dashboard"],
                python=sys.executable,
                log_directory=folder,
                local_directory="/tmp",
                protocol="tls://",
                security=True,
                shared_temp_directory=folder,
                silence_logs="CRITICAL",
                scheduler_options={"dashboard_address": ":0"},
            )
        ends.callback(cluster.close)
        client = distributed.Client(cluster)
        ends.callback(client.close)
        # A job that ends, at its time limit or by scancel, is replaced.
        cluster.adapt(minimum_jobs=nodes, maximum_jobs=nodes)
        return _begun(client, prepare, ends)
    except BaseException:
        ends.close()
        raise


def _begun(client: Any, prepare: Prepare, ends: contextlib.ExitStack) -> OnDask:
    try:
        return OnDask(client, prepare, ends)
    except BaseException:
        ends.close()
        raise


def _certificates(security: Any) -> dict[str, object]:
    """Return the settings with which a worker of Dask proves who it is."""
    found = security.get_tls_config_for_role("worker")
    return {
        "distributed.comm.require-encryption": True,
        "distributed.comm.tls.ca-file": found["ca_file"],
        "distributed.comm.tls.worker.cert": found["cert"],
        "distributed.comm.tls.worker.key": found["key"],
    }


def _settings(retries: int, seconds: float) -> dict[str, object]:
    return {
        "distributed.scheduler.allowed-failures": retries,
        # Dask counts the death of a worker for all tasks that it has, those that wait there as well.
        "distributed.scheduler.worker-saturation": 1.0,
        "distributed.scheduler.worker-ttl": f"{seconds} s",
        "distributed.scheduler.no-workers-timeout": f"{seconds} s",
    }


class _Started:
    """Command that runs a worker, and what it has said.

    Args:
        place: where the worker runs.
        scheduler: address of the scheduler.
        daemon: address of the daemon that the worker uses on this machine; empty for the user's own.
        secrets: what `work` reads.
    """

    def __init__(self, place: Place, scheduler: str, daemon: str, secrets: bytes) -> None:
        self.place = place
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (until the end of the worker)
        words = ["--name", place.name, "--nthreads", "1", "--nworkers", "1", "--no-dashboard", "--memory-limit", "0"]
        words += ["--protocol", "tls", "--death-timeout", "30"]
        if place.host is None:
            command = launch.program(_COMMAND, scheduler, *words, "--host", _LOOPBACK)
        else:
            here = scheduler.rpartition(":")[2]
            there, worker, forwarded = random.sample(_PORTS, 3)
            command = place.host.background_command(
                "jitserver",
                *(_COMMAND, f"tls://{_LOOPBACK}:{there}", *words),
                *("--listen-address", f"tls://{_LOOPBACK}:{worker}"),
                *("--contact-address", f"tls://{_LOOPBACK}:{forwarded}"),
                forward=[
                    f"-R{_LOOPBACK}:{there}:{_LOOPBACK}:{here}",
                    f"-L{_LOOPBACK}:{forwarded}:{_LOOPBACK}:{worker}",
                ],
            )
        # In a session of its own, which Ctrl-C in the terminal does not reach.
        self._process = subprocess.Popen(
            command,
            env={**os.environ, **({"JITSERVER_ADDRESS": daemon} if daemon else {})},
            stdin=subprocess.PIPE,
            stdout=2,
            stderr=self._said,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._process.stdin as stdin:
            stdin.write(secrets)

    def error(self) -> JitserverError | None:
        """Return why there is no worker, if the command has ended."""
        if self._process.poll() is None:
            return None
        self._said.seek(0)
        said = self._said.read().decode(errors="replace").strip()[-2000:]
        if self.place.host is not None:
            return self.place.host.refusal(self._process.returncode, said, "worker")
        return WorkerLost(f"pool: no worker starts on this machine (status {self._process.returncode}): {said}")

    def end(self) -> None:
        """End the command, and all that it has started on this machine."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._said.close()


def _wait(client: Any, started: Sequence[_Started]) -> None:
    """Wait until the workers have started.

    Raises:
        JitserverError: none does.
    """
    polling = Polling(_START_SECONDS)
    while True:
        ready = len(client.scheduler_info(n_workers=-1)["workers"])
        errors = [error for one in started if (error := one.error()) is not None]
        if len(errors) == len(started):
            raise errors[0]
        if ready + len(errors) >= len(started):
            break
        if not polling.pause():
            if not ready:
                raise HostUnreachable(f"pool: no worker has reached the scheduler within {_START_SECONDS:.0f} s")
            break
    for error in errors:
        print_notice(f"pool: a worker cannot be started ({error})")


# ---- in a worker


def work(words: Sequence[str]) -> None:
    """Be the worker that `dask worker` with these words is: the command that `_Started` runs."""
    with contextlib.suppress(OSError):  # it is the first of its session already
        os.setsid()
    secrets = json.loads(sys.stdin.buffer.read())
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    import dask
    from distributed.cli.dask_worker import main

    dask.config.set(secrets)
    try:
        main(words, standalone_mode=False)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        # Without a scheduler, nothing runs on: a task that does not end either, nor what it has started.
        os.killpg(0, signal.SIGKILL)
