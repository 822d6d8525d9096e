"""Crashes of a daemon between any two steps of a checkpoint: the rest is correct, and the next start cleans up."""

import functools
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

from jitserver.daemon.sessions.session import DaemonSession
from jitserver.programs.exceptions import Failed

from .conftest import Daemon


class Killed(BaseException):
    """Raised in place of a crash: no later change reaches the disk."""


class Killer:
    """Allows so many changes of a folder, then crashes."""

    EVENTS = ("open", "os.mkdir", "os.rename", "os.remove")

    def __init__(self) -> None:
        self.root, self.left = "", 0
        sys.addaudithook(self._hook)  # which cannot be removed, so there is only one

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.root or event not in self.EVENTS or not str(arguments[0]).startswith(self.root):
            return
        if event == "open" and arguments[1] in ("r", "rb"):
            return
        self.left -= 1
        if self.left < 0:
            raise Killed

    def run(self, root: Path, left: int, step: Callable[[], object]) -> bool:
        """Whether it has crashed."""
        self.root, self.left = f"{root}/", left
        try:
            step()
        except Killed:
            return True
        finally:
            self.root = ""
        return False


killer = Killer()


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[Iterator[Daemon]]:
    return (Daemon(tmp_path / str(number)) for number in itertools.count())


def filled(daemon: Daemon) -> list[DaemonSession]:
    """A name and two sessions that share an array, and have others."""
    shared = jnp.arange(10)
    daemon.keep("data", [shared, jnp.zeros(3)])
    return [daemon.begin({1: shared, 2: jnp.full(5, number), 3: jnp.arange(2)}) for number in range(2)]


def found(daemon: Daemon, sessions: list[DaemonSession]) -> list[bool]:
    """Which of the name and the sessions exist; asserts that they are correct, and the disk is empty afterwards."""
    assert {path.name for path in daemon.files("arrays")} == daemon.checkpoint._manifests._named()
    there, shared = [daemon.names() == ["data"]], set()
    assert daemon.lost() in ({}, {"data": "the daemon died while it saved the arrays"})
    if there[0]:
        x, y = daemon.leaves("data")
        assert (x.tolist(), y.tolist()) == (list(range(10)), [0, 0, 0])
        shared.add(id(x))
    for number, session in enumerate(sessions):
        back = daemon.resume(session.token)
        there.append(back is not None)
        if back is not None:
            assert not any(isinstance(array, Failed) for array in back.arrays.values())
            assert [back.array(handle).tolist() for handle in (1, 2)] == [list(range(10)), [number] * 5]
            shared.add(id(back.array(1)))
    assert len(shared) <= 1
    assert daemon.is_empty()
    return there


def test_killed_during_a_save(daemons: Iterator[Daemon]) -> None:
    outcomes = []
    for left, daemon in enumerate(daemons):
        sessions = filled(daemon)
        killed = killer.run(daemon.root, left, daemon.leave)
        outcomes.append(found(Daemon(daemon.root), sessions))
        if not killed:
            break
    assert outcomes[0] == [False, False, False]
    assert outcomes[-1] == [True, True, True]
    assert len(outcomes) > 6 + 3 * 2, "each array, and each manifest, which gets its name at the end"
    assert [sum(there) for there in outcomes] == sorted(sum(there) for there in outcomes)


STEPS: dict[str, Callable[[Daemon, DaemonSession], object]] = {
    "the name comes back": lambda daemon, _: daemon.leaves("data"),
    "the name is given up": lambda daemon, _: daemon.kept.forget("data"),
    "a session comes back": lambda daemon, session: daemon.back(session),
    "a session is given up": lambda daemon, session: daemon.sessions.end(daemon.sessions.by_token[session.token]),
}


@pytest.mark.parametrize("step", STEPS)
def test_killed_while(step: str, daemons: Iterator[Daemon]) -> None:
    outcomes = []
    for left, daemon in enumerate(daemons):
        sessions = filled(daemon)
        killed = killer.run(daemon.root, left, functools.partial(STEPS[step], daemon.restart(), sessions[0]))
        outcomes.append(found(Daemon(daemon.root), sessions))
        if not killed:
            break
    gone = [False, True, True] if "name" in step else [True, False, True]
    assert outcomes[0] == [True, True, True], "killed before the first step"
    assert outcomes[1:] == [gone] * (len(outcomes) - 1)
    assert len(outcomes) >= 3, "the manifest, and at least one array"


def test_killed_during_the_start(daemons: Iterator[Daemon]) -> None:
    for left, daemon in enumerate(daemons):
        sessions = filled(daemon)
        daemon.leave()
        for name in ("arrays/0123", "manifests/.0123.new"):
            (daemon.root / name).write_bytes(b"half")
        killed = killer.run(daemon.root, left, functools.partial(Daemon, daemon.root))
        assert found(Daemon(daemon.root), sessions) == [True, True, True]
        if not killed:
            break
    assert left >= 2
