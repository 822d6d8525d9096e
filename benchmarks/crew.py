"""Contenders, each with its server and its clients in processes of their own."""

import contextlib
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.measure import Samples, interleave
from benchmarks.processes import FINDS_BENCHMARKS, end, environment, temporary_folder
from benchmarks.rivals import why_missing
from benchmarks.worker import Workload

_ANSWER_SECONDS = 1200.0


class Worker:
    """A client of a rival, in a process of its own."""

    def __init__(self, rival: ModuleType, env: dict[str, str], folder: Path) -> None:
        here, there = socket.socketpair()
        with there, open(folder / "worker.log", "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.worker", rival.__name__, str(there.fileno())],
                env={**env, **FINDS_BENCHMARKS},
                cwd=folder,
                pass_fds=[there.fileno()],
                stdout=log,
                stderr=log,
            )
        self._connection = Connection(here.detach())

    def prepare(self, workload: Workload, **sizes: Any) -> None:
        """Has it prepare a workload.

        Raises:
            RuntimeError: that failed there.
        """
        self._connection.send((workload, sizes))
        self.result()

    def begin(self) -> None:
        """Has it take a sample, without waiting for it."""
        self._connection.send(None)

    def has_finished(self) -> bool:
        """Whether the sample is there."""
        return self._connection.poll()

    def result(self) -> Any:
        """Waits for what it was last told.

        Raises:
            RuntimeError: that failed there, or takes too long.
        """
        if not self._connection.poll(_ANSWER_SECONDS):
            raise RuntimeError(f"no answer in {_ANSWER_SECONDS:.0f} s")
        try:
            result, error = self._connection.recv()
        except EOFError:
            raise RuntimeError("the process of the client has died") from None
        if error:
            raise RuntimeError(error)
        return result

    def sample(self) -> Any:
        """Has it take a sample, and waits for it."""
        self.begin()
        return self.result()

    def close(self) -> None:
        """Lets it end, and waits for that."""
        self._connection.close()  # it leaves then by itself, and takes along what it has started
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(30)
        end(self._process)


class Crew:
    """All contenders of a scenario; of those who cannot start, or fail later, `missing` and `failed` say why."""

    def __init__(self, rivals: Sequence[ModuleType], clients: int = 1) -> None:
        self.missing = {rival.NAME: why for rival in rivals if (why := why_missing(rival))}
        self.failed: dict[str, str] = {}
        self.workers: dict[str, list[Worker]] = {}
        self.environments: dict[str, dict[str, str]] = {}
        self._stacks: dict[str, contextlib.ExitStack] = {}
        for rival in rivals:
            if rival.NAME not in self.missing:
                self._start(rival, clients)

    def compare(self, label: str, workload: Workload, rounds: int, only: Sequence[str] = (), **sizes: Any) -> Samples:
        """Let a client of each contender take samples of a workload, in turns.

        Args:
            label: what a terminal shows meanwhile.
            workload: what to do.
            rounds: how many samples each takes.
            only: the contenders to compare, if not all.
            **sizes: what the workload takes.
        """
        names = [name for name in self.workers if name in only or not only]
        ready = [name for name in names if self.attempt(name, lambda name=name: self._prepare(name, workload, sizes))]
        return self.take_turns(label, {name: self.workers[name][0].sample for name in ready}, rounds)

    def take_turns(self, label: str, contenders: dict[str, Callable[[], Any]], rounds: int, warm: int = 1) -> Samples:
        """As `interleave`, for contenders of this crew: one that fails is out for good."""
        samples = interleave(contenders, rounds, label, warm)
        for name, why in samples.failed.items():
            self._dismiss(name, why)
        samples.failed, samples.missing = dict(self.failed), dict(self.missing)
        return samples

    def attempt(self, name: str, action: Callable[[], Any]) -> bool:
        """Whether an action of a contender worked; if not, it is out."""
        try:
            action()
        except Exception as error:
            self._dismiss(name, str(error))
        return name in self.workers

    def close(self) -> None:
        """Ends every process."""
        for stack in self._stacks.values():
            stack.close()

    def _start(self, rival: ModuleType, clients: int) -> None:
        stack = self._stacks[rival.NAME] = contextlib.ExitStack()
        try:
            folder = stack.enter_context(temporary_folder())
            env = self.environments[rival.NAME] = environment(folder, **stack.enter_context(rival.serve(folder)))
            workers = self.workers[rival.NAME] = []
            for _ in range(clients):
                workers.append(Worker(rival, env, folder))
                stack.callback(workers[-1].close)
            for worker in workers:
                worker.result()
        except Exception as error:
            self._dismiss(rival.NAME, str(error))
        except BaseException:
            self.close()
            raise

    def _prepare(self, name: str, workload: Workload, sizes: dict[str, Any]) -> None:
        self.workers[name][0].prepare(workload, **sizes)

    def _dismiss(self, name: str, why: str) -> None:
        self.failed[name] = why.strip()
        self.workers.pop(name, None)
        self._stacks.pop(name).close()


@contextlib.contextmanager
def crew(rivals: Sequence[ModuleType], clients: int = 1) -> Iterator[Crew]:
    """The contenders of a scenario, each with so many clients; ended afterwards."""
    made = Crew(rivals, clients)
    try:
        yield made
    finally:
        made.close()
