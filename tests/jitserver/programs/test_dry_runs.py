"""Dry runs: which programs are run on zeros before their first call, and what the journal notes meanwhile."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jitclient.errors import ArrayBudgetExceeded
from jitclient.jaxside.avals import abstract, spec_of_aval
from jitclient.wire.messages import Spec
from jitclient.wire.shardings import Mesh, Sharding
from jitserver.programs import context, prewarm
from jitserver.programs.counters import Counters
from jitserver.programs.devices import device_arrays
from jitserver.programs.devices.backend import backend
from jitserver.programs.engine import Engine
from jitserver.programs.prewarm import dry_run
from jitserver.programs.program import CompiledProgram
from jitserver.store.disk import Store
from jitserver.store.journal import Journal, read
from jitserver.store.memory import MemoryTier
from jitserver.store.strikes import DRY_RUN, Strikes, Work
from jitserver.store.tiers import Tiers
from jitserver.store.write_behind import Writer

F8 = Spec((8,), "float32")
KEY = "a" * 32
OTHERS = ["b" * 32, "c" * 32, "d" * 32]


class Run:
    """An executable that records its arguments, and the journal during the call."""

    def __init__(self, compiled: Any, slot: memoryview) -> None:
        self._compiled, self._slot = compiled, slot
        self.given: list[Any] = []
        self.noted: list[Work | None] = []
        self.then: Callable[[], object] = lambda: None

    def __call__(self, *leaves: Any) -> Any:
        self.given.append([np.array(leaf, copy=True) for leaf in map(_as_numpy, leaves)])
        self.noted.append(read(bytes(self._slot)))
        self.then()
        return self._compiled(*leaves)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compiled, name)


def _as_numpy(leaf: Any) -> Any:
    return device_arrays.to_host(leaf) if isinstance(leaf, jax.Array) else leaf


@dataclasses.dataclass
class Daemon:
    engine: Engine

    def has(
        self, function: Callable[..., Any], *specs: Spec, key: str = KEY, slowest: float = 0.1, **facts: Any
    ) -> Run:
        """Adds a program to the memory, with the duration of its slowest call."""
        given = {"donated": (), "settings": (), "may_raise": False, **facts}
        with context.entered(given["settings"]):
            traced = jax.jit(function, donate_argnums=given["donated"]).trace(*map(abstract, specs))
            run = Run(traced.lower().compile(), self.engine.journal.thread_state.slot)
        program = CompiledProgram(
            run=run,
            tree=b"",
            seconds={},
            code_bytes=0,
            **{"specs": specs, "results": tuple(map(spec_of_aval, jax.tree.leaves(traced.out_avals))), **given},
        )
        info = SimpleNamespace(label="f(f32[8])", slowest=slowest)
        entry: Any = SimpleNamespace(key=key, info=info, program=program, nbytes=0)
        self.engine.cache.memory.put(entry)
        return run

    def dry_runs(
        self,
        *keys: str,
        may_begin: Callable[[], bool] = lambda: True,
        reserve_memory: Callable[[int, str], None] = lambda nbytes, what: None,
    ) -> int:
        """Makes the dry runs; returns their number."""
        dry_run(self.engine, keys or (KEY,), may_begin, reserve_memory)
        return self.engine.counters.dry_runs


@pytest.fixture
def daemon(tmp_path: Path) -> Daemon:
    cache = Tiers(MemoryTier(1 << 40, 1 << 20), Store(Path(), 0), Writer(lambda: 0))
    return Daemon(Engine(Counters(), cache, Journal.create(tmp_path, tmp_path)))


def scans(x: Any) -> Any:
    return lax.scan(lambda c, _: (jnp.sin(c) + 1, c), x, None, length=50)


SAME_WORK: dict[str, tuple[Callable[..., Any], tuple[Spec, ...], dict[str, Any]]] = {
    "ordinary operations": (lambda x: (jnp.sort(x), jnp.fft.fft(x), x @ x, x[jnp.argmax(x)]), (F8,), {}),
    "a scan": (scans, (F8,), {}),
    "random numbers": (lambda key: jax.random.normal(key, (8,)), (Spec((), "key<fry>"),), {}),
    "a donated argument": (lambda x: x + 1, (F8,), {"donated": (0,)}),
    "arrays of no size": (lambda x: (x * 2, x.sum()), (Spec((0, 3), "float32"),), {}),
    "no arguments": (lambda: jnp.arange(3), (), {}),
    "bfloat16": (lambda x: x * 2, (Spec((8,), "bfloat16"),), {}),
    "64 bits": (lambda x: x * 2, (Spec((8,), "float64"),), {"settings": (("jax_enable_x64", True),)}),
}


@pytest.mark.parametrize("kind", SAME_WORK)
def test_a_program_that_always_does_the_same_work_is_run_once(daemon: Daemon, kind: str) -> None:
    function, specs, facts = SAME_WORK[kind]
    run = daemon.has(function, *specs, **facts)
    assert daemon.dry_runs() == 1
    [given] = run.given
    assert len(given) == len(specs)
    assert not any(leaf.any() for leaf in given)
    assert run.noted == [Work(DRY_RUN, KEY, "f(f32[8])")]
    assert daemon.engine.journal.thread_state.slot[0] == 0
    assert daemon.engine.counters.calls == 0


def ends_by_its_data(x: Any) -> Any:
    return lax.while_loop(lambda c: c.sum() == 0, lambda c: c * 2, x)


UNSURE: dict[str, tuple[Callable[..., Any], tuple[Spec, ...]]] = {
    "a loop that zeros never end": (ends_by_its_data, (F8,)),
    "one in a scan": (lambda x: lax.map(ends_by_its_data, x), (Spec((3, 8), "float32"),)),
    "one whose scope sounds as if it had an end": (
        lambda x: jax.named_scope('"known_trip_count":{"n":"3"}')(ends_by_its_data)(x),
        (F8,),
    ),
    "a loop whose count is an argument": (
        lambda x, n: lax.fori_loop(0, n, lambda _, c: jnp.sin(c), x),
        (F8, Spec((), "int32")),
    ),
    "samples that are rejected": (lambda key: jax.random.gamma(key, 2.0, (8,)), (Spec((), "key<fry>"),)),
    "a branch that zeros may be the first to take": (
        lambda x: lax.cond(x.sum() == 0, lambda x: scans(x)[1].sum(0), jnp.sin, x),
        (F8,),
    ),
    "a call of LAPACK": (lambda x: jnp.linalg.cholesky(x[:, None] * x), (F8,)),
    "a callback": (lambda x: jax.pure_callback(lambda x: x, x, x) + 1, (F8,)),
}


@pytest.mark.parametrize("kind", UNSURE)
def test_a_program_whose_work_depends_on_values_is_not_run(daemon: Daemon, kind: str) -> None:
    function, specs = UNSURE[kind]
    run = daemon.has(function, *specs)
    run.then = lambda: pytest.fail("it was run")
    assert daemon.dry_runs() == 0
    assert run.given == []


PLACED = Spec((8,), "float32", sharding=Sharding(Mesh((), (), (0,))))
MORE_TO_IT: dict[str, dict[str, Any]] = {
    "no time was recorded": {"slowest": 0.0},
    "a call took long": {"slowest": 1.1},
    "it may raise": {"may_raise": True},
    "a crash is held against it": {"suspect": KEY},
    "it has been called": {"calls": 1},
    "its argument is placed": {"specs": (PLACED,)},
    "its result is placed": {"results": (PLACED,)},
}


@pytest.mark.parametrize("fact", MORE_TO_IT)
def test_a_program_that_is_not_plain_is_not_run(daemon: Daemon, fact: str) -> None:
    run = daemon.has(lambda x: x + 1, F8, **MORE_TO_IT[fact])
    assert daemon.dry_runs() == 0
    assert run.given == []


def test_an_evicted_program_is_skipped(daemon: Daemon) -> None:
    daemon.has(lambda x: x + 1, F8)
    assert daemon.dry_runs("b" * 32, KEY) == 1


def test_a_program_is_run_if_its_memory_is_free(daemon: Daemon) -> None:
    asked: list[tuple[int, str]] = []

    def reserve_memory(nbytes: int, what: str) -> None:
        asked.append((nbytes, what))
        if nbytes >= 1000:
            raise ArrayBudgetExceeded("there is no room")

    large = daemon.has(lambda x: jnp.stack([x] * 100), F8)
    small = daemon.has(lambda x: x + 1, F8, key=OTHERS[0])
    assert daemon.dry_runs(KEY, OTHERS[0], reserve_memory=reserve_memory) == 1
    assert (len(large.given), len(small.given)) == (0, 1)
    assert asked == [(32 + 3200, "a dry run of f(f32[8])"), (64, "a dry run of f(f32[8])")]


def test_a_program_with_large_arguments_is_not_run(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prewarm, "_MAX_BYTES", 1000)
    large = daemon.has(lambda x: jnp.stack([x] * 100), F8)
    small = daemon.has(lambda x: x + 1, F8, key=OTHERS[0])
    assert daemon.dry_runs(KEY, OTHERS[0]) == 1
    assert (len(large.given), len(small.given)) == (0, 1)


def test_a_dry_run_that_raises_does_not_stop_the_others(daemon: Daemon) -> None:
    def fails() -> None:
        raise ValueError("as it should")

    daemon.has(lambda x: x + 1, F8).then = fails
    daemon.has(lambda x: x + 1, F8, key=OTHERS[0])
    assert daemon.dry_runs(KEY, OTHERS[0]) == 1
    assert daemon.engine.journal.thread_state.slot[0] == 0


@pytest.mark.parametrize("when", ["before", "while its text is read"])
def test_no_dry_run_begins_while_a_client_is_connected(daemon: Daemon, when: str) -> None:
    first, second = daemon.has(lambda x: x + 1, F8), daemon.has(lambda x: x + 1, F8, key=OTHERS[0])
    there: list[str] = []
    if when == "before":
        first.then = lambda: there.append("a client")
        second.as_text = lambda: pytest.fail("it was read")  # type: ignore[attr-defined]
    else:
        text = second.as_text()
        second.as_text = lambda: there.append("a client") or text  # type: ignore[attr-defined]
    assert daemon.dry_runs(KEY, OTHERS[0], may_begin=lambda: not there) == 1
    assert (len(first.given), len(second.given)) == (1, 0)


def test_no_dry_run_begins_after_ten_seconds(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(prewarm, "time", SimpleNamespace(monotonic=lambda: now[0]))
    for key, seconds in zip((KEY, *OTHERS), (4.5, 4.4, 0.2, 0.0), strict=True):
        run = daemon.has(lambda x: x + 1, F8, key=key)
        run.then = lambda seconds=seconds: now.__setitem__(0, now[0] + seconds)  # type: ignore[misc]
    assert daemon.dry_runs(KEY, *OTHERS) == 3  # the last begins after 8.9 s, as it may take one second


def test_a_program_that_crashed_in_a_dry_run_gets_no_other(daemon: Daemon, tmp_path: Path) -> None:
    for key in (KEY, OTHERS[0]):
        daemon.has(lambda x: x + 1, F8, key=key)
    Strikes(tmp_path).add([Work(DRY_RUN, KEY, "f(f32[8])")], 1.0)
    assert daemon.dry_runs(KEY, OTHERS[0]) == 1
    assert daemon.engine.journal.strikes.count(KEY, DRY_RUN) == 1


def test_after_three_such_programs_there_are_no_dry_runs(daemon: Daemon, tmp_path: Path) -> None:
    daemon.has(lambda x: x + 1, F8)
    for key in OTHERS:
        Strikes(tmp_path).add([Work("running", key, "g()")], 1.0)
    assert daemon.dry_runs() == 1
    for key in OTHERS:
        Strikes(tmp_path).add([Work(DRY_RUN, key, "g()")], 1.0)
    assert daemon.dry_runs() == 1


def test_without_a_journal_there_are_no_dry_runs(daemon: Daemon) -> None:
    daemon.engine.journal = Journal()
    daemon.has(lambda x: x + 1, F8)
    assert daemon.dry_runs() == 0


def test_on_other_devices_there_are_no_dry_runs(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = dataclasses.replace(backend(), finishes_calls=False)
    monkeypatch.setattr(prewarm, "backend", lambda: elsewhere)
    daemon.has(lambda x: x + 1, F8)
    assert daemon.dry_runs() == 0
